//! Traces: a span for each call, sent to an OpenTelemetry collector.
//!
//! A call that belongs to a sampled trace is always recorded, one of an unsampled trace never, and
//! of those without a trace one in so many. Spans wait in a bounded queue that drops when it is
//! full; they carry no value of a descriptor.

use std::time::Duration;

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span,
};
use opentelemetry_sdk::Resource;
use tonic::metadata::MetadataMap;

use crate::config::Traces as Settings;
use crate::limits::{TRACE_EXPORT_EVERY, TRACE_EXPORT_PATIENCE};
use crate::protocol::{Code, RateLimitRequest, RateLimitResponse};

/// The name of every span: the call's full name.
const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// A call that is going on; [`Call::end`] sends its span.
#[derive(Debug)]
pub struct Call(Span);

impl Traces {
    /// Begins to send. Needs the runtime of tokio around it; connects when there is something to
    /// send.
    ///
    /// # Errors
    /// A text for people when the exporter cannot be made; nothing runs then.
    pub fn start(settings: &Settings) -> Result<Self, String> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(settings.endpoint.clone())
            .with_timeout(TRACE_EXPORT_PATIENCE)
            .build()
            .map_err(|error| error.to_string())?;
        let batches = BatchConfigBuilder::default().with_scheduled_delay(TRACE_EXPORT_EVERY);
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches.build())
            .build();
        let ratio = Sampler::TraceIdRatioBased(1.0 / f64::from(settings.sample_every));
        let about = Resource::builder_empty()
            .with_service_name("gabiond")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(ratio)))
            .with_resource(about.build())
            .build();
        Ok(Self {
            tracer: provider.tracer("gabiond"),
            provider,
            propagator: TraceContextPropagator::new(),
        })
    }

    /// A call has come with this metadata.
    pub fn begin(&self, metadata: &MetadataMap) -> Call {
        let nothing = Context::new();
        let parent = self
            .propagator
            .extract_with_context(&nothing, &Carrier(metadata));
        let span = self.tracer.span_builder(NAME).with_kind(SpanKind::Server);
        Call(span.start_with_context(&self.tracer, &parent))
    }

    /// Sends what waits, and ends.
    pub fn end(&self, patience: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(patience) {
            tracing::info!(%error, "the last traces were not sent");
        }
    }
}

impl Call {
    /// The call is over: what it asked, and the answer, or the text of its refusal.
    pub fn end(mut self, request: &RateLimitRequest, answer: Result<&RateLimitResponse, &str>) {
        let span = &mut self.0;
        if !span.is_recording() {
            return;
        }
        let domain = String::from_utf8_lossy(&request.domain).into_owned();
        let descriptors = i64::try_from(request.descriptors.len()).unwrap_or(i64::MAX);
        span.set_attribute(KeyValue::new("rpc.system", "grpc"));
        span.set_attribute(KeyValue::new("gabion.domain", domain));
        span.set_attribute(KeyValue::new("gabion.descriptors", descriptors));
        match answer {
            Ok(answer) => {
                let denied = answer.overall_code() == Code::OverLimit;
                let decision = if denied { "denied" } else { "allowed" };
                span.set_attribute(KeyValue::new("gabion.decision", decision));
            }
            Err(refused) => span.set_status(Status::error(refused.to_owned())),
        }
        span.end();
    }
}

/// gRPC metadata as propagators read it.
struct Carrier<'m>(&'m MetadataMap);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new() // only asked for by propagators that search
    }
}
