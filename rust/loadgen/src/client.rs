//! Sends one request and says what came back.
//!
//! Owns: connections. Promises: every call ends within its timeout; an answer is read whole, up to
//! [`MAX_BODY_BYTES`]. Never: retries (a retry would hide a failure from the report).

use std::borrow::Cow;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::StatusCode;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::transport::{Channel, Endpoint};

use crate::limits::{MAX_BODY_BYTES, MAX_CONNECTIONS};
use crate::mix::Draw;
use crate::rls;
use crate::target::Target;
use crate::template::{HitsField, Shape};

/// What one request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Let through.
    Admitted,
    /// Over a limit.
    Denied,
    /// Neither: the kind, as the report names it.
    Error(Cow<'static, str>),
}

impl Outcome {
    /// The kind of error of a request that took longer than its timeout.
    pub const TIMEOUT: &'static str = "timeout";
}

/// A client for one shape of request and a list of targets.
pub struct Client {
    shape: Shape,
    urls: Vec<String>,
    /// gRPC: `connections` channels for each target, target by target.
    channels: Vec<Channel>,
    connections: usize,
    http: HyperClient<HttpConnector, Empty<Bytes>>,
    timeout: Duration,
}

impl Client {
    /// Prepares connections; they open on first use, so an unreachable target shows as errors.
    /// `connections` (gRPC only) is brought into 1..=[`MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// A target whose URL gRPC cannot use.
    pub fn new(
        shape: Shape,
        targets: &[Target],
        connections: usize,
        timeout: Duration,
    ) -> Result<Client, tonic::transport::Error> {
        let connections = connections.clamp(1, MAX_CONNECTIONS);
        let mut channels = Vec::new();
        if matches!(shape, Shape::Grpc { .. }) {
            for target in targets {
                let endpoint = Endpoint::from_shared(target.url.clone())?
                    .connect_timeout(timeout)
                    .tcp_nodelay(true);
                channels.extend((0..connections).map(|_| endpoint.connect_lazy()));
            }
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeout));
        let http = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        let urls = targets.iter().map(|t| t.url.clone()).collect();
        Ok(Client {
            shape,
            urls,
            channels,
            connections,
            http,
            timeout,
        })
    }

    /// Sends request number `n` to target `target` and waits for its outcome.
    pub async fn call(&self, target: usize, draw: &Draw, n: u64) -> Outcome {
        match tokio::time::timeout(self.timeout, self.send(target, draw, n)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Error(Cow::Borrowed(Outcome::TIMEOUT)),
        }
    }

    async fn send(&self, target: usize, draw: &Draw, n: u64) -> Outcome {
        match &self.shape {
            Shape::Grpc { .. } => {
                // whole rounds of the targets, so that every connection of each is used
                let round = usize::try_from(n).unwrap_or(0) / self.urls.len();
                let lane = round % self.connections;
                let channel = self.channels[target * self.connections + lane].clone();
                match rls::should_rate_limit(channel, rls_request(&self.shape, draw, n)).await {
                    Ok(answer) => match answer.overall_code {
                        rls::CODE_OK => Outcome::Admitted,
                        rls::CODE_OVER_LIMIT => Outcome::Denied,
                        other => Outcome::Error(format!("rls_code_{other}").into()),
                    },
                    Err(status) => Outcome::Error(rls::status_kind(status.code()).into()),
                }
            }
            Shape::Http { path, headers } => {
                let uri = format!("{}{}", self.urls[target], path.render(draw, n));
                let mut builder = hyper::Request::get(uri);
                for (name, value) in headers {
                    builder = builder.header(name.as_str(), value.render(draw, n));
                }
                match builder.body(Empty::new()) {
                    Ok(request) => self.send_http(request).await,
                    Err(_) => Outcome::Error(Cow::Borrowed("bad_request_template")),
                }
            }
        }
    }

    async fn send_http(&self, request: hyper::Request<Empty<Bytes>>) -> Outcome {
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(e) if e.is_connect() => return Outcome::Error(Cow::Borrowed("connect")),
            Err(_) => return Outcome::Error(Cow::Borrowed("http_broken")),
        };
        let status = response.status();
        // the body is read to its end, or the connection could not be used again
        if Limited::new(response.into_body(), MAX_BODY_BYTES)
            .collect()
            .await
            .is_err()
        {
            return Outcome::Error(Cow::Borrowed("http_body"));
        }
        match status {
            StatusCode::TOO_MANY_REQUESTS => Outcome::Denied,
            status if status.is_success() => Outcome::Admitted,
            status => Outcome::Error(format!("http_{}", status.as_u16()).into()),
        }
    }
}

/// The rate-limit request of `shape` for one draw; empty for an HTTP shape.
fn rls_request(shape: &Shape, draw: &Draw, n: u64) -> rls::RateLimitRequest {
    let Shape::Grpc {
        domain,
        descriptors,
        hits,
    } = shape
    else {
        return rls::RateLimitRequest::default();
    };
    let own_hits = match hits {
        HitsField::Descriptor => draw.hits.map(|h| rls::UInt64Value {
            value: u64::from(h),
        }),
        HitsField::Request => None,
    };
    let descriptors = descriptors
        .iter()
        .map(|descriptor| rls::Descriptor {
            entries: descriptor
                .0
                .iter()
                .map(|(key, value)| rls::Entry {
                    key: key.clone(),
                    value: value.render(draw, n),
                })
                .collect(),
            hits_addend: own_hits.clone(),
        })
        .collect();
    let hits_addend = match hits {
        HitsField::Request => draw.hits.unwrap_or(0),
        HitsField::Descriptor => 0,
    };
    rls::RateLimitRequest {
        domain: domain.clone(),
        descriptors,
        hits_addend,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_go_where_the_shape_says() {
        let draw = Draw {
            key: "t".into(),
            hits: Some(5),
        };
        let shape = |hits| Shape::grpc("d", &["tenant={key}".to_owned()], hits).unwrap();
        let request = rls_request(&shape(HitsField::Request), &draw, 0);
        assert_eq!(
            (request.hits_addend, &request.descriptors[0].hits_addend),
            (5, &None)
        );
        let request = rls_request(&shape(HitsField::Descriptor), &draw, 0);
        assert_eq!(request.hits_addend, 0);
        assert_eq!(
            request.descriptors[0].hits_addend,
            Some(rls::UInt64Value { value: 5 })
        );
        assert_eq!(request.descriptors[0].entries[0].value, "t");
    }
}
