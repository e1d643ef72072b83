//! The gRPC face of the engine.
//!
//! I own what a call is refused for, and what becomes of a fault inside: the request is let
//! through.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::engine::Engine;
use crate::protocol::{
    Code, DescriptorStatus, RateLimitRequest, RateLimitResponse, RateLimitService,
};
use crate::tally::Cause;

/// The gRPC face of an [`Engine`].
#[derive(Clone, Debug)]
pub struct Service {
    engine: Arc<Engine>,
}

impl Service {
    /// Serves `engine`.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Decides one request, whatever it came by.
    ///
    /// # Errors
    /// What is missing in it; nothing was decided then.
    pub fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, &'static str> {
        let tally = self.engine.tally();
        if request.domain.is_empty() {
            tally.cause(Cause::NoDomain, 1);
            return Err("the request names no domain");
        }
        if request.descriptors.is_empty() {
            tally.cause(Cause::NoDescriptors, 1);
            return Err("the request has no descriptors");
        }
        let answer = catch_unwind(AssertUnwindSafe(|| self.engine.answer(request)));
        Ok(answer.unwrap_or_else(|_panic| {
            tally.cause(Cause::Internal, 1);
            let ok = DescriptorStatus {
                code: Code::Ok.into(),
                ..DescriptorStatus::default()
            };
            RateLimitResponse {
                overall_code: Code::Ok.into(),
                statuses: vec![ok; request.descriptors.len()],
                ..RateLimitResponse::default()
            }
        }))
    }
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let traces = self.engine.observer().traces();
        let call = traces.map(|traces| traces.begin(request.metadata()));
        let request = request.into_inner();
        let answer = self.decide(&request);
        if let Some(call) = call {
            call.end(&request, answer.as_ref().map_err(|refused| *refused));
        }
        answer.map(Response::new).map_err(Status::invalid_argument)
    }
}
