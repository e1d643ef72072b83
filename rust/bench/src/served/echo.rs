//! The yardstick: a server on the very same gRPC stack and settings that answers without deciding.
//!
//! It answers with a message of the same shape as gabiond's, so that what is compared is the
//! limiter and not the encoding. It runs in a process of its own, as gabiond does.

use std::path::Path;

use gabion_server::config;
use gabion_server::net::{Bounds, Gate};
use gabion_server::protocol::{
    Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse,
    RateLimitService, RateLimitServiceServer, Unit,
};
use gabion_server::server::grpc_server;
use tonic::{Request, Response, Status};

use crate::BenchError;

struct Echo {
    headers: Vec<HeaderValue>,
}

#[tonic::async_trait]
impl RateLimitService for Echo {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let status = |_| DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit {
                name: "bench".into(),
                requests_per_unit: 1_000,
                unit: Unit::Minute.into(),
            }),
            limit_remaining: 999,
            duration_until_reset: Some(Default::default()),
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            response_headers_to_add: self.headers.clone(),
            statuses: request.get_ref().descriptors.iter().map(status).collect(),
            ..RateLimitResponse::default()
        }))
    }
}

/// The headers of an answer, as gabiond names them.
const HEADERS: [(&str, &str); 3] = [
    ("x-ratelimit-limit", "4000000000, 4000000000;w=60"),
    ("x-ratelimit-remaining", "3999999999"),
    ("x-ratelimit-reset", "42"),
];

/// Serves until the process is ended; writes its address to `address_file` by rename.
///
/// # Errors
/// No socket, no file.
pub async fn serve(address_file: &Path, has_headers: bool) -> Result<(), BenchError> {
    let bind = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let server = config::Server::default();
    let bounds = Bounds::from(&server);
    let gate = Gate::bind(&bind.into(), bounds, None)?;
    let part = address_file.with_extension("part");
    std::fs::write(&part, gate.bound().to_string())?;
    std::fs::rename(&part, address_file)?;
    let header = |(key, value): (&'static str, &'static str)| HeaderValue {
        key: key.into(),
        value: value.into(),
        ..HeaderValue::default()
    };
    let headers = if has_headers {
        HEADERS.into_iter().map(header).collect()
    } else {
        Vec::new()
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<RateLimitServiceServer<Echo>>().await;
    let service = RateLimitServiceServer::new(Echo { headers })
        .max_decoding_message_size(server.max_request_bytes);
    grpc_server(&server)
        .add_service(service)
        .add_service(health)
        .serve_with_incoming(gate.into_stream())
        .await?;
    Ok(())
}
