//! The client's side of `envoy.service.ratelimit.v3`, written from the published field numbers.
//!
//! Owns: the few messages a client needs, and the call. Promises: shares no code with the server,
//! so that a mistake in one does not hide in the other. Never: interprets answers beyond the code.

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// `RateLimitResponse.Code.OK`.
pub const CODE_OK: i32 = 1;
/// `RateLimitResponse.Code.OVER_LIMIT`.
pub const CODE_OVER_LIMIT: i32 = 2;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// Descriptor key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Descriptor value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `google.protobuf.UInt64Value`: tells 0 and unset apart.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UInt64Value {
    /// The value.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`, without the override.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Descriptor {
    /// Entries in order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Hits of this descriptor; 0 only reads.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
}

/// `RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// Namespace of the rules.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is counted.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// Hits of every descriptor that does not say its own; 0 counts as 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `RateLimitResponse.DescriptorStatus`, as far as a client reads it here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// OK or OVER_LIMIT.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// What is left of the limit.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
}

/// `RateLimitResponse`, as far as a client reads it here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// OK or OVER_LIMIT.
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
    /// One status for each descriptor, in the request's order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
}

/// Asks once.
///
/// # Errors
/// What gRPC answered instead: the connection failed, or the server returned a status.
pub async fn should_rate_limit(
    channel: Channel,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let mut grpc = Grpc::new(channel);
    let not_ready = |e: tonic::transport::Error| Status::unavailable(e.to_string());
    grpc.ready().await.map_err(not_ready)?;
    let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
    let path = PathAndQuery::from_static(METHOD);
    Ok(grpc
        .unary(Request::new(request), path, codec)
        .await?
        .into_inner())
}

/// The name of a gRPC status in a report, such as `grpc_deadline_exceeded`.
pub fn status_kind(code: Code) -> String {
    let mut kind = String::from("grpc");
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() {
            kind.push('_');
        }
        kind.push(c.to_ascii_lowercase());
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn the_bytes_are_those_of_the_published_protocol() {
        let request = RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![Descriptor {
                entries: vec![Entry {
                    key: "k".into(),
                    value: "v".into(),
                }],
                hits_addend: Some(UInt64Value { value: 7 }),
            }],
            hits_addend: 5,
        };
        // field 1 "d"; field 2 { field 1 { 1: "k", 2: "v" } field 3 { 1: 7 } }; field 3 = 5
        let want = b"\x0a\x01d\x12\x0c\x0a\x06\x0a\x01k\x12\x01v\x1a\x02\x08\x07\x18\x05";
        assert_eq!(request.encode_to_vec(), want);
        let answer = RateLimitResponse::decode(&b"\x08\x02\x12\x02\x08\x01"[..]).unwrap();
        assert_eq!(
            (answer.overall_code, answer.statuses[0].code),
            (CODE_OVER_LIMIT, CODE_OK)
        );
    }

    #[test]
    fn kinds_are_snake_case() {
        assert_eq!(status_kind(Code::Unavailable), "grpc_unavailable");
        assert_eq!(
            status_kind(Code::DeadlineExceeded),
            "grpc_deadline_exceeded"
        );
    }
}
