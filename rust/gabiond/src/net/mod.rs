//! Listening sockets with a bound on what they let in.
//!
//! I own accepting, the count of open connections, their handshakes and their idle time. I promise
//! that a full house makes newcomers wait in the kernel's queue, that a silent connection does not
//! keep its place, that a slow handshake holds up nobody else, and that a failing `accept` never
//! ends serving. I never look at what a connection says.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::Accept;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::config::{self, Bind};
use crate::limits::ACCEPT_PAUSE;
use crate::tls::Source;

mod listener;

pub use listener::SocketFile;
use listener::{Listener, Socket};

/// What a port lets in.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// How long a connection may take for its handshake and first word.
    pub first_word: Duration,
    /// How long it may say nothing later on; `None`: for ever.
    pub idle: Option<Duration>,
    /// How long its other end may take no byte of what is to be sent.
    pub stuck: Duration,
    /// Permissions of the file of a Unix socket.
    pub socket_mode: u32,
}

impl From<&config::Server> for Bounds {
    fn from(server: &config::Server) -> Self {
        Self {
            connections: server.max_connections,
            first_word: server.handshake_timeout,
            idle: server.idle_timeout,
            stuck: server.write_timeout,
            socket_mode: server.socket_mode,
        }
    }
}

/// What happened at a port so far.
#[derive(Debug, Default)]
pub struct Events {
    accepted: AtomicU64,
    accept_errors: AtomicU64,
    silent: AtomicU64,
    stuck: AtomicU64,
    handshakes_failed: AtomicU64,
    open: AtomicU64,
}

impl Events {
    /// Names and counts, as `/snapshot` shows them.
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed); // counts that order nothing
        [
            ("accepted", of(&self.accepted)),
            ("accept_errors", of(&self.accept_errors)),
            ("closed_silent", of(&self.silent)),
            ("closed_stuck", of(&self.stuck)),
            ("handshakes_failed", of(&self.handshakes_failed)),
        ]
    }
}

fn count(event: &AtomicU64) {
    event.fetch_add(1, Ordering::Relaxed); // a count that orders nothing
}

/// A port as others may look at it while it serves.
#[derive(Clone, Debug)]
pub struct View {
    events: Arc<Events>,
    connections: usize,
    tls: Option<Arc<Source>>,
}

impl View {
    /// What happened so far.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.events.open.load(Ordering::Relaxed) // a count that orders nothing
    }

    /// The most that may be open.
    pub fn most(&self) -> usize {
        self.connections
    }

    /// Its certificates, if it has any.
    pub fn tls(&self) -> Option<&Arc<Source>> {
        self.tls.as_ref()
    }
}

/// A listener that holds at most a fixed number of connections open.
#[derive(Debug)]
pub struct Gate {
    listener: Listener,
    bound: Bind,
    file: Option<SocketFile>,
    bounds: Bounds,
    places: Arc<Semaphore>,
    tls: Option<Arc<Source>>,
    events: Arc<Events>,
}

impl Gate {
    /// Listens on `bind`; connections speak TLS when there are certificates.
    ///
    /// # Errors
    /// What the kernel says; nothing is bound then.
    pub fn bind(bind: &Bind, mut bounds: Bounds, tls: Option<Arc<Source>>) -> io::Result<Self> {
        let (listener, bound, file) = Listener::bind(bind, bounds.socket_mode)?;
        bounds.connections = bounds.connections.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            listener,
            bound,
            file,
            places: Arc::new(Semaphore::new(bounds.connections)),
            bounds,
            tls,
            events: Arc::default(),
        })
    }

    /// The address in use; its port is the kernel's choice if 0 was asked for.
    pub fn bound(&self) -> &Bind {
        &self.bound
    }

    /// The guard of the socket's file, to be dropped when the process ends. Until it is taken, the
    /// file goes with this gate.
    pub fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }

    /// A look at this port from elsewhere.
    pub fn view(&self) -> View {
        View {
            events: Arc::clone(&self.events),
            connections: self.bounds.connections,
            tls: self.tls.clone(),
        }
    }

    /// The next connection, once there is a place for it.
    async fn next(&mut self) -> Visitor {
        let place = loop {
            match Arc::clone(&self.places).acquire_owned().await {
                Ok(place) => break place,
                Err(_closed) => std::future::pending().await, // never closed
            }
        };
        loop {
            match self.listener.accept().await {
                Ok(socket) => {
                    count(&self.events.accepted);
                    return self.visitor(socket, place);
                }
                Err(error) => {
                    count(&self.events.accept_errors);
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

    fn visitor(&self, socket: Socket, place: OwnedSemaphorePermit) -> Visitor {
        let wire = match &self.tls {
            None => Wire::Plain(socket),
            Some(source) => {
                let peer = socket.peer();
                let accept = Box::new(source.acceptor().accept(socket));
                Wire::Shaking { accept, peer }
            }
        };
        Visitor {
            wire,
            idle: Idle {
                limit: self.bounds.idle,
                heard: false,
                sleep: Some(Box::pin(tokio::time::sleep(self.bounds.first_word))),
            },
            stuck: Stuck {
                limit: self.bounds.stuck,
                sleep: None,
            },
            place: Place::taken(place, &self.events),
        }
    }

    /// The connections as a stream that never ends, for tonic.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Visitor>> {
        futures_util::stream::unfold(self, |mut gate| async move {
            let visitor = gate.next().await;
            Some((Ok(visitor), gate))
        })
    }
}

impl axum::serve::Listener for Gate {
    type Io = Visitor;
    type Addr = Bind;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        (self.next().await, self.bound.clone())
    }

    fn local_addr(&self) -> io::Result<Bind> {
        Ok(self.bound.clone())
    }
}

/// What bytes go over.
enum Wire {
    Plain(Socket),
    /// The handshake goes on inside the first read or write, so that only this connection waits
    /// for it.
    Shaking {
        accept: Box<Accept<Socket>>,
        peer: String,
    },
    Tls(Box<TlsStream<Socket>>),
    /// The handshake failed.
    Dead,
}

/// One connection; its place is free again when it is dropped.
pub struct Visitor {
    wire: Wire,
    idle: Idle,
    stuck: Stuck,
    place: Place,
}

/// The place of an open connection, counted as long as it is taken.
struct Place {
    events: Arc<Events>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    fn taken(permit: OwnedSemaphorePermit, events: &Arc<Events>) -> Self {
        count(&events.open);
        Self {
            events: Arc::clone(events),
            _permit: permit,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.events.open.fetch_sub(1, Ordering::Relaxed); // a count that orders nothing
    }
}

/// Ends a connection that says nothing for the first word's time, or later for one to two limits.
struct Idle {
    limit: Option<Duration>,
    /// Something was received since the sleep began. A flag, so that a read sets no timer.
    heard: bool,
    /// `None`: it may be silent for ever.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(sleep) = &mut self.sleep {
            if sleep.as_mut().poll(cx).is_pending() {
                return false;
            }
            if !std::mem::take(&mut self.heard) {
                return true;
            }
            match self.limit {
                Some(limit) => sleep.as_mut().reset(Instant::now() + limit),
                None => self.sleep = None,
            }
        }
        false
    }
}

/// Ends a connection whose other end takes nothing. HTTP/2's own ping cannot: it waits behind what
/// is not taken, and nothing is read meanwhile either.
struct Stuck {
    limit: Duration,
    /// Runs while something waits to be taken.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Stuck {
    /// Whether the wait is over its limit; a write that went through begins anew.
    fn is_over(&mut self, cx: &mut Context<'_>, is_waiting: bool) -> bool {
        if !is_waiting {
            self.sleep = None;
            return false;
        }
        let limit = self.limit;
        let sleep = &mut self.sleep;
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        sleep.as_mut().poll(cx).is_ready()
    }
}

impl Visitor {
    /// What a write came to, unless it has waited for too long.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.stuck.is_over(cx, written.is_pending()) {
            count(&self.place.events.stuck);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }

    /// Pending while the handshake goes on; an error when it failed or took too long.
    fn poll_wire(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Wire::Shaking { accept, peer } = &mut self.wire else {
            return Poll::Ready(Ok(()));
        };
        match Pin::new(accept).poll(cx) {
            Poll::Ready(Ok(stream)) => {
                self.wire = Wire::Tls(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                count(&self.place.events.handshakes_failed);
                tracing::info!("a TLS handshake with {peer} failed: {error}");
                self.wire = Wire::Dead;
                Poll::Ready(Err(error))
            }
            Poll::Pending => self.poll_idle(cx),
        }
    }

    /// Ready with an error once the connection was silent for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.idle.is_over(cx) {
            count(&self.place.events.silent);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

/// Calls the same method of whichever wire it is, once there is one.
macro_rules! on_wire {
    ($this:ident, $cx:ident, $stream:ident => $call:expr) => {{
        ready!($this.poll_wire($cx))?;
        match &mut $this.wire {
            Wire::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Wire::Tls(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Wire::Shaking { .. } | Wire::Dead => {
                Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
            }
        }
    }};
}

impl Connected for Visitor {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = on_wire!(this, cx, stream => stream.poll_read(cx, buf));
        if read.is_ready() {
            this.idle.heard = true;
            return read;
        }
        this.poll_idle(cx)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = on_wire!(this, cx, stream => stream.poll_write(cx, bytes));
        this.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = on_wire!(this, cx, stream => stream.poll_write_vectored(cx, slices));
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true // plain sockets and TLS both are
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let written = on_wire!(this, cx, stream => stream.poll_flush(cx));
        this.written(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            // Nothing was said that could be brought to an end.
            Wire::Shaking { .. } | Wire::Dead => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn gate(connections: usize, first_word: Duration) -> Gate {
        let loopback = Bind::Tcp(([127, 0, 0, 1], 0).into());
        let bounds = Bounds {
            connections,
            first_word,
            idle: None,
            stuck: Duration::from_millis(20),
            socket_mode: 0o600,
        };
        Gate::bind(&loopback, bounds, None).unwrap()
    }

    #[tokio::test]
    async fn case_24_a_full_house_makes_newcomers_wait_for_a_place() {
        let mut gate = gate(1, Duration::from_secs(60));
        let (addr, view) = (gate.bound().tcp().unwrap(), gate.view());
        let _first = TcpStream::connect(addr).await.unwrap();
        let inside = gate.next().await;
        let mut second = TcpStream::connect(addr).await.unwrap();
        second.write_all(b"x").await.unwrap();
        assert_eq!(
            (view.open(), view.most()),
            (1, 1),
            "the only place is taken"
        );
        let waiting = tokio::spawn(async move { gate.next().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(inside);
        let mut visitor = waiting.await.unwrap();
        assert_eq!(visitor.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn a_silent_connection_is_closed() {
        let mut gate = gate(1, Duration::from_millis(20));
        let _client = TcpStream::connect(gate.bound().tcp().unwrap())
            .await
            .unwrap();
        let mut visitor = gate.next().await;
        let error = visitor.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(gate
            .view()
            .events()
            .counts()
            .contains(&("closed_silent", 1)));
    }

    #[tokio::test]
    async fn a_connection_that_takes_nothing_is_closed() {
        let mut gate = gate(1, Duration::from_secs(60));
        let _client = TcpStream::connect(gate.bound().tcp().unwrap())
            .await
            .unwrap();
        let mut visitor = gate.next().await;
        let error = loop {
            if let Err(error) = visitor.write_all(&[0; 65_536]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(gate.view().events().counts().contains(&("closed_stuck", 1)));
    }
}
