//! Requests to the admin server of a running member.
//!
//! I own one request at a time over a connection of its own, TCP or Unix. I promise a bound on time
//! and size, and an error that says what to try. I never follow redirects and speak no TLS.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Member;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Where a member's admin server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Target::Unix(PathBuf::from(path)));
        }
        let plain = text.strip_prefix("http://").unwrap_or(text);
        let plain = plain.trim_end_matches('/');
        let port = plain.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(1..)) => Ok(Target::Tcp(plain.to_owned())),
            _ => Err("write HOST:PORT, such as 127.0.0.1:9090, or unix:PATH".to_owned()),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "{address}"),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a member gave no answer, or none that helps. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error(
        "{target}: no connection: {error}. Is the member running, and is this its admin_bind?"
    )]
    Connect {
        /// Where.
        target: Target,
        /// What the system says.
        error: std::io::Error,
    },
    /// The connection gave no answer.
    #[error("{target}: no answer: {what}. Whether the request was carried out is not known")]
    NoAnswer {
        /// Where.
        target: Target,
        /// What happened.
        what: String,
    },
    /// An answer that refuses.
    #[error("{target}: {status}: {text}")]
    Refused {
        /// Where.
        target: Target,
        /// Status of HTTP.
        status: u16,
        /// What the member says.
        text: String,
    },
    /// The token cannot be read. Nothing was asked.
    #[error("{path}: the token cannot be read: {error}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

impl Member {
    /// Reads `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get(&self, path: &str) -> Result<String, ClientError> {
        self.ask(hyper::Method::GET, path)
    }

    /// Asks for the change that `path` names.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn post(&self, path: &str) -> Result<String, ClientError> {
        self.ask(hyper::Method::POST, path)
    }

    /// Reads `path` as JSON.
    ///
    /// # Errors
    /// [`ClientError`], also when it is no JSON.
    pub fn json(&self, path: &str) -> Result<serde_json::Value, ClientError> {
        let text = self.get(path)?;
        serde_json::from_str(&text).map_err(|error| self.no_answer(&error))
    }

    fn no_answer(&self, what: &dyn std::fmt::Display) -> ClientError {
        ClientError::NoAnswer {
            target: self.target.clone(),
            what: what.to_string(),
        }
    }

    fn token(&self) -> Result<Option<String>, ClientError> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|error| ClientError::Token {
            path: path.clone(),
            error,
        })?;
        Ok(Some(text.trim().to_owned()))
    }

    fn ask(&self, method: hyper::Method, path: &str) -> Result<String, ClientError> {
        let token = self.token()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.no_answer(&error))?;
        runtime.block_on(async {
            let asked = self.connect_and_send(method, path, token.as_deref());
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(self.no_answer(&format!("none within {PATIENCE:?}"))),
            }
        })
    }

    async fn connect_and_send(
        &self,
        method: hyper::Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<String, ClientError> {
        let unreachable = |error| ClientError::Connect {
            target: self.target.clone(),
            error,
        };
        match &self.target {
            Target::Tcp(address) => {
                let stream = tokio::net::TcpStream::connect(address).await;
                let stream = stream.map_err(unreachable)?;
                self.send(stream, address, method, path, token).await
            }
            Target::Unix(socket) => {
                let stream = tokio::net::UnixStream::connect(socket).await;
                let stream = stream.map_err(unreachable)?;
                self.send(stream, "localhost", method, path, token).await
            }
        }
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
        method: hyper::Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<String, ClientError> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.no_answer(&error))?;
        tokio::spawn(connection);
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| self.no_answer(&error))?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| self.no_answer(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = body.await.map_err(|error| self.no_answer(&error))?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        Err(ClientError::Refused {
            target: self.target.clone(),
            status: status.as_u16(),
            text: text.trim_end().to_owned(),
        })
    }
}

/// `text` as a value in a query.
pub fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_in_all_their_forms() {
        let tcp = |text: &str| Ok(Target::Tcp(text.to_owned()));
        assert_eq!("127.0.0.1:9090".parse(), tcp("127.0.0.1:9090"));
        assert_eq!("http://localhost:80/".parse(), tcp("localhost:80"));
        assert_eq!("[::1]:9090".parse(), tcp("[::1]:9090"));
        let unix = Target::Unix(PathBuf::from("/run/g.sock"));
        assert_eq!("unix:/run/g.sock".parse(), Ok(unix.clone()));
        assert_eq!(unix.to_string().parse(), Ok(unix));
        for bad in [
            "",
            "host",
            "host:",
            "host:0",
            "host:70000",
            "unix:",
            "https://a",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn values_of_queries_are_escaped() {
        assert_eq!(escaped("a-b_c.~1"), "a-b_c.~1");
        assert_eq!(escaped("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
