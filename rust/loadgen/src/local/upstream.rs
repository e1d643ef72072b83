//! The smallest useful upstream: answers 200, or what a request's `x-answer` asks for, and counts.
//!
//! Owns: a listener and its connections. Promises: counts every request that got through to it.
//! Never: limits anything itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A running upstream; ends when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    served: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// Serves on a port that the kernel chooses.
    ///
    /// # Errors
    /// No port on loopback.
    pub async fn start() -> std::io::Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let served = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(serve(listener, Arc::clone(&served)));
        Ok(Upstream {
            address,
            served,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, served: Arc<AtomicU64>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let served = Arc::clone(&served);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            served.fetch_add(1, Ordering::SeqCst);
            let mut reply = hyper::Response::new(Full::new(Bytes::from_static(b"upstream\n")));
            *reply.status_mut() = asked_for(&request).unwrap_or_default();
            async move { Ok::<_, Infallible>(reply) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

/// The status that a test wants.
fn asked_for(request: &hyper::Request<Incoming>) -> Option<hyper::StatusCode> {
    let wanted = request.headers().get("x-answer")?;
    hyper::StatusCode::from_bytes(wanted.as_bytes()).ok()
}
