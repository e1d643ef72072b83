//! The same decisions for callers that speak HTTP and JSON: `POST /json`, `GET /healthcheck`.
//!
//! I own the JSON form of a request and its answer, as protobuf defines it. I promise the status
//! codes of the Envoy project's reference service: 200, 429 when over a limit, 400 when the
//! request is none. I never decide.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::http::{header, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::Router;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::member::{Member, State};
use crate::protocol::{Code, RateLimitRequest, RateLimitResponse, FILE_DESCRIPTORS};
use crate::service::Service;

const REQUEST: &str = "envoy.service.ratelimit.v3.RateLimitRequest";
const RESPONSE: &str = "envoy.service.ratelimit.v3.RateLimitResponse";
/// Fields that are bytes in Envoy's API. The other byte fields of ours are texts there.
const REAL_BYTES: [&str; 2] = ["raw_value", "raw_body"];

/// The routes over one member; a body has at most `body_bytes`.
pub fn router(member: Arc<Member>, body_bytes: usize) -> Router {
    Router::new()
        .route("/json", post(decide))
        .route("/healthcheck", get(health))
        .layer(DefaultBodyLimit::max(body_bytes))
        .with_state(member)
}

async fn health(Shared(member): Shared<Arc<Member>>) -> Response {
    match member.state() {
        State::Ready => "OK".into_response(),
        State::Starting | State::Draining => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn decide(Shared(member): Shared<Arc<Member>>, body: Bytes) -> Response {
    let service = Service::new(Arc::clone(member.engine()));
    let answer = request_of(&body).and_then(|request| {
        let answer = service.decide(&request);
        answer.map_err(str::to_owned)
    });
    match answer {
        Ok(answer) => shown(&answer),
        Err(why) => (StatusCode::BAD_REQUEST, format!("Bad Request: {why}\n")).into_response(),
    }
}

fn shown(answer: &RateLimitResponse) -> Response {
    let status = match answer.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok => StatusCode::OK,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match json_of(answer) {
        Some(text) => {
            let form = [(header::CONTENT_TYPE, "application/json")];
            (status, form, text).into_response()
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The protocol's messages, with texts as texts.
fn pool() -> Option<&'static DescriptorPool> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut files = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTORS).ok()?;
        for file in &mut files.file {
            file.message_type.iter_mut().for_each(texts_as_texts);
        }
        DescriptorPool::from_file_descriptor_set(files).ok()
    })
    .as_ref()
}

/// Our messages hold texts as slices of what was received, so they are bytes there. On the wire the
/// two are one; in JSON they are not.
fn texts_as_texts(message: &mut prost_types::DescriptorProto) {
    use prost_types::field_descriptor_proto::Type;
    for field in &mut message.field {
        if field.r#type() == Type::Bytes && !REAL_BYTES.contains(&field.name()) {
            field.set_type(Type::String);
        }
    }
    message.nested_type.iter_mut().for_each(texts_as_texts);
}

fn message(name: &str) -> Option<MessageDescriptor> {
    pool()?.get_message_by_name(name)
}

fn request_of(body: &[u8]) -> Result<RateLimitRequest, String> {
    let form = message(REQUEST).ok_or_else(|| "the protocol is not there".to_owned())?;
    let mut text = serde_json::Deserializer::from_slice(body);
    let read = DynamicMessage::deserialize(form, &mut text).map_err(|e| e.to_string())?;
    text.end().map_err(|e| e.to_string())?;
    RateLimitRequest::decode(read.encode_to_vec().as_slice()).map_err(|e| e.to_string())
}

fn json_of(answer: &RateLimitResponse) -> Option<String> {
    let bytes = answer.encode_to_vec();
    let answer = DynamicMessage::decode(message(RESPONSE)?, bytes.as_slice()).ok()?;
    serde_json::to_string(&answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_and_every_form_of_numbers_are_read() {
        let plain = br#"{"domain":"d","hitsAddend":2,"descriptors":[{"entries":
            [{"key":"k","value":"v"}],"hitsAddend":"3"}]}"#;
        let other = br#"{"domain":"d","hits_addend":"2","descriptors":[{"entries":
            [{"key":"k","value":"v"}],"hits_addend":3}]}"#;
        let request = request_of(plain).unwrap();
        assert_eq!(request, request_of(other).unwrap());
        assert_eq!((&request.domain[..], request.hits_addend), (&b"d"[..], 2));
        assert_eq!(request.descriptors[0].hits_addend, Some(3));
        assert_eq!(&request.descriptors[0].entries[0].value[..], b"v");
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        let wrong: [&[u8]; 6] = [
            b"",
            b"[]",
            b"{\"domain\": 1}",
            b"{\"domains\": \"d\"}",
            b"{\"domain\": \"d\"} x",
            b"{\"hitsAddend\": -1}",
        ];
        for body in wrong {
            let refused = request_of(body);
            assert!(refused.is_err(), "{}", String::from_utf8_lossy(body));
        }
    }
}
