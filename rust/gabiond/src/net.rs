//! Listening sockets with a bound on what they let in.
//!
//! I own accepting, the count of open connections and their idle time. I promise that a full
//! house makes newcomers wait in the kernel's queue, that a silent connection does not keep its
//! place, and that a failing `accept` never ends serving. I never look at what a connection says.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::limits::{ACCEPT_PAUSE, FIRST_WORD};

/// A listener that holds at most a fixed number of connections open.
pub struct Gate {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Option<Duration>,
}

impl Gate {
    /// Listens on `addr` for at most `connections` at once; connections that receive nothing for
    /// `idle` are closed.
    ///
    /// # Errors
    /// What the kernel says, with the address; nothing is bound then.
    pub async fn bind(
        addr: SocketAddr,
        connections: usize,
        idle: Option<Duration>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        Ok(Self {
            listener,
            places: Arc::new(Semaphore::new(connections)),
            idle,
        })
    }

    /// The address that the kernel gave.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection, once there is a place for it.
    async fn next(&mut self) -> (Visitor, SocketAddr) {
        let place = loop {
            match Arc::clone(&self.places).acquire_owned().await {
                Ok(place) => break place,
                Err(_closed) => std::future::pending().await, // never closed
            }
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // A socket that refuses the option still works, only later.
                    let _ = stream.set_nodelay(true);
                    return (Visitor::new(stream, place, self.idle), from);
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "a connection could not be accepted; trying again. If this goes on, raise \
                         the limit of open files"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The connections as a stream that never ends, for tonic.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Visitor>> {
        futures_util::stream::unfold(self, |mut gate| async move {
            let (visitor, _from) = gate.next().await;
            Some((Ok(visitor), gate))
        })
    }
}

impl axum::serve::Listener for Gate {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Gate::local_addr(self)
    }
}

/// One connection; its place is free again when it is dropped.
pub struct Visitor {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    idle: Option<Idle>,
}

/// Ends a connection that receives nothing for one to two limits.
struct Idle {
    limit: Duration,
    /// Something was received since the sleep began. A flag, so that a read sets no timer.
    heard: bool,
    sleep: Pin<Box<Sleep>>,
}

impl Idle {
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.heard) {
                return true;
            }
            self.sleep.as_mut().reset(Instant::now() + self.limit);
        }
        false
    }
}

impl Visitor {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit, idle: Option<Duration>) -> Self {
        let idle = idle.map(|limit| Idle {
            limit,
            heard: false,
            sleep: Box::pin(tokio::time::sleep(limit.min(FIRST_WORD))),
        });
        Self {
            stream,
            _place: place,
            idle,
        }
    }
}

impl Connected for Visitor {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Some(idle) = &mut this.idle {
            if read.is_ready() {
                idle.heard = true;
            } else if idle.is_over(cx) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LOOPBACK: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn case_24_a_full_house_makes_newcomers_wait_for_a_place() {
        let mut gate = Gate::bind(LOOPBACK, 1, None).await.unwrap();
        let addr = gate.local_addr().unwrap();
        let _first = TcpStream::connect(addr).await.unwrap();
        let (inside, _) = gate.next().await;
        let mut second = TcpStream::connect(addr).await.unwrap();
        second.write_all(b"x").await.unwrap();
        assert!(
            gate.places.try_acquire().is_err(),
            "the only place is taken"
        );
        let waiting = tokio::spawn(async move { gate.next().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(inside);
        let (mut visitor, _) = waiting.await.unwrap();
        assert_eq!(visitor.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn a_silent_connection_is_closed() {
        let mut gate = Gate::bind(LOOPBACK, 1, Some(Duration::from_millis(20)))
            .await
            .unwrap();
        let _client = TcpStream::connect(gate.local_addr().unwrap())
            .await
            .unwrap();
        let (mut visitor, _) = gate.next().await;
        let error = visitor.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
