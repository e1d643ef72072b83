//! The generated protocol types, under short names.
//!
//! Owns nothing: the types come from `proto/` through `build.rs`.

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
}

pub use generated::envoy::config::core::v3::HeaderValue;
pub use generated::envoy::extensions::common::ratelimit::v3::{
    rate_limit_descriptor::{Entry, RateLimitOverride},
    RateLimitDescriptor,
};
pub use generated::envoy::r#type::v3::RateLimitUnit;
pub use generated::envoy::service::ratelimit::v3::{
    rate_limit_response::{rate_limit::Unit, Code, DescriptorStatus, RateLimit},
    rate_limit_service_client::RateLimitServiceClient,
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    RateLimitRequest, RateLimitResponse,
};

/// The fully qualified name under which the service answers, also to health checks.
pub const SERVICE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The vendored protocol files as a `FileDescriptorSet`, for gRPC reflection.
pub const FILE_DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/protocol.descriptors"));

/// A descriptor out of `(key, value)` pairs, as a client sends it.
pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: bytes::Bytes::copy_from_slice(key.as_bytes()),
        value: bytes::Bytes::copy_from_slice(value.as_bytes()),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..Default::default()
    }
}

/// A request of one hit for `descriptors`, as a client sends it.
pub fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: bytes::Bytes::copy_from_slice(domain.as_bytes()),
        descriptors,
        hits_addend: 0,
    }
}
