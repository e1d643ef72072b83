//! Small HTTP requests to admin pages and through proxies.
//!
//! Owns: nothing; each call has its own connection. Promises: an answer is read whole, up to a
//! bound, within a time. Never: follows redirects, speaks TLS.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::LocalError;
use crate::limits::MAX_BODY_BYTES;

/// How long one request may take.
const TIMEOUT_S: u64 = 10;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: hyper::HeaderMap,
    /// The body as text.
    pub body: String,
}

impl Reply {
    /// A header's text, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// GETs `path` from `address` with `headers`.
///
/// # Errors
/// No whole answer in time.
pub async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Reply, LocalError> {
    let from = format!("http://{address}{path}");
    let work = tokio::time::timeout(Duration::from_secs(TIMEOUT_S), send(address, path, headers));
    match work.await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(e)) => Err(LocalError::answer(&from, e)),
        Err(_) => Err(LocalError::answer(
            &from,
            format!("no answer within {TIMEOUT_S} s"),
        )),
    }
}

/// GETs JSON.
///
/// # Errors
/// No answer, another status than 200, or no JSON.
pub async fn get_json(address: SocketAddr, path: &str) -> Result<serde_json::Value, LocalError> {
    let reply = get(address, path, &[]).await?;
    let from = format!("http://{address}{path}");
    if reply.status != 200 {
        return Err(LocalError::answer(
            &from,
            format!("status {}", reply.status),
        ));
    }
    serde_json::from_str(&reply.body).map_err(|e| LocalError::answer(&from, e))
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn send(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Reply, AnyError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = hyper::Request::get(path).header("host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::new())?).await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await?
        .to_bytes();
    connection.abort();
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Reply {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    })
}
