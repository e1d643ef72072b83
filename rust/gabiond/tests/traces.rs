//! Calls are traced to an OpenTelemetry collector, within the caller's trace.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Member, PATIENCE};
use gabion_server::protocol::{descriptor, request};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (Collector, String) {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TraceServiceServer::new(collector.clone());
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (collector, format!("http://{address}"))
}

/// One hit on a limit of 1, within the trace that `traceparent` names.
async fn ask(member: &Member, traceparent: &str) {
    let mut asked = Request::new(request("edge", vec![descriptor(&[("ip", "10.1.2.3")])]));
    let metadata = asked.metadata_mut();
    metadata.insert("traceparent", traceparent.parse().unwrap());
    member
        .client()
        .await
        .should_rate_limit(asked)
        .await
        .unwrap();
}

async fn spans(collector: &Collector, count: usize) -> Vec<Span> {
    let start = std::time::Instant::now();
    loop {
        let spans = collector.0.lock().unwrap().clone();
        if spans.len() >= count {
            return spans;
        }
        assert!(start.elapsed() < PATIENCE, "{spans:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn attribute<'s>(span: &'s Span, name: &str) -> &'s str {
    let found = span.attributes.iter().find(|pair| pair.key == name);
    match &found.unwrap().value.as_ref().unwrap().value {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_of_the_trace_it_belongs_to() {
    let (collector, endpoint) = collector().await;
    let mut member = Member::start(&format!(
        "limits: [{{name: ip, domain: edge, rate: 1r/h, descriptors: [{{key: ip}}]}}]\n\
         traces: {{endpoint: '{endpoint}', sample_every: 4000000000}}\n"
    ));
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    ask(&member, &format!("00-{trace}-{parent}-01")).await;
    ask(&member, &format!("00-{trace}-{parent}-00")).await; // not sampled by the caller
    ask(&member, &format!("00-{trace}-{parent}-01")).await;
    let found = spans(&collector, 2).await;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    for (span, decision) in found.iter().zip(["allowed", "denied"]) {
        assert_eq!(
            (hex(&span.trace_id), hex(&span.parent_span_id)),
            (trace.into(), parent.into())
        );
        assert_eq!(
            span.name,
            "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        );
        assert_eq!(attribute(span, "gabion.decision"), decision);
        assert_eq!(attribute(span, "gabion.domain"), "edge");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        assert!(
            !format!("{span:?}").contains("10.1.2.3"),
            "no value is told"
        );
    }
    // What waits is sent before the end.
    ask(&member, &format!("00-{trace}-{parent}-01")).await;
    member.terminate();
    assert!(member.wait().success(), "{}", member.log());
    assert_eq!(spans(&collector, 3).await.len(), 3);
}

#[tokio::test]
async fn a_collector_that_is_away_harms_nobody() {
    let mut member = Member::start(
        "limits: [{name: ip, domain: edge, rate: 9r/h, descriptors: [{key: ip}]}]\n\
         traces: {endpoint: 'http://127.0.0.1:1', sample_every: 1}\n",
    );
    for _ in 0..9 {
        let answer = member
            .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
            .await;
        assert_eq!(answer.overall_code(), gabion_server::protocol::Code::Ok);
    }
    member.terminate();
    assert!(member.wait().success(), "{}", member.log());
}

#[test]
fn an_endpoint_that_cannot_be_is_refused() {
    for (traces, says) in [
        ("{endpoint: 'https://localhost:4317'}", "TLS to it is not"),
        ("{endpoint: 'collector:4317'}", "http://HOST:PORT"),
        ("{endpoint: 'http://localhost'}", "http://HOST:PORT"),
        ("{sample_every: 5}", "nothing without endpoint"),
    ] {
        let scratch = common::Scratch::new();
        let file = scratch.file("g.yaml", &format!("limits: []\ntraces: {traces}\n"));
        let said = common::ended_with(&common::run(&["check", common::text(&file)]), 1);
        assert!(said.contains(says), "{traces}: {said}");
    }
}
