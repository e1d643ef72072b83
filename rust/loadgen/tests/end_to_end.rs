//! The load generator against real servers in this process: a tonic one and a hyper one.
// a test fails by panicking, in its helpers too
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gabion_loader::report::Report;
use gabion_loader::rls::{
    Descriptor, RateLimitRequest, RateLimitResponse, CODE_OK, CODE_OVER_LIMIT,
};
use gabion_loader::run::{run, Live, Plan};
use gabion_loader::schedule::Schedule;
use gabion_loader::template::{HitsField, Shape};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

fn plan(targets: &[String], shape: Shape, rate: f64, seconds: f64) -> Plan {
    Plan {
        schedule: Schedule::constant(rate, seconds).unwrap(),
        targets: targets.iter().map(|t| t.parse().unwrap()).collect(),
        mix: "single:alice".parse().unwrap(),
        seed: 1,
        shape,
        concurrency: 64,
        connections: 2,
        timeout: Duration::from_secs(2),
    }
}

async fn go(plan: Plan) -> Report {
    let report = run(plan, Arc::new(Live::default())).await.unwrap();
    println!("{}", report.text());
    assert_eq!(
        report.sent,
        report.admitted + report.denied + report.error_count
    );
    assert_eq!(report.offered, report.sent + report.unsent);
    report
}

/// What a server does with a request.
type Answer = dyn Fn(&RateLimitRequest) -> i32 + Send + Sync;

mod grpc_server {
    //! A rate-limit server without generated code.
    use super::{Answer, Arc, Infallible, RateLimitRequest, RateLimitResponse};
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tonic::body::Body;
    use tonic::codegen::{http, Service};
    use tonic::server::{Grpc, NamedService, UnaryService};
    use tonic_prost::ProstCodec;

    #[derive(Clone)]
    pub(crate) struct Rls(pub(crate) Arc<Answer>);

    impl NamedService for Rls {
        const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
    }

    type Reply<T> = Pin<Box<dyn Future<Output = T> + Send>>;

    impl Service<http::Request<Body>> for Rls {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Reply<Result<Self::Response, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            assert!(request.uri().path().ends_with("/ShouldRateLimit"));
            let unary = Unary(Arc::clone(&self.0));
            Box::pin(async move {
                let codec: ProstCodec<RateLimitResponse, RateLimitRequest> = ProstCodec::default();
                Ok(Grpc::new(codec).unary(unary, request).await)
            })
        }
    }

    struct Unary(Arc<Answer>);

    impl UnaryService<RateLimitRequest> for Unary {
        type Response = RateLimitResponse;
        type Future = Reply<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;
        fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
            let overall_code = (self.0)(request.get_ref());
            Box::pin(async move {
                if overall_code < 0 {
                    return Err(tonic::Status::resource_exhausted("told to"));
                }
                Ok(tonic::Response::new(RateLimitResponse {
                    overall_code,
                    statuses: vec![],
                }))
            })
        }
    }
}

async fn serve_grpc(answer: Arc<Answer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(grpc_server::Rls(answer));
    tokio::spawn(server.serve_with_incoming(incoming));
    format!("http://{address}")
}

/// Serves HTTP/1.1; `status` gets the path and the `x-user` header.
async fn serve_http<F>(status: F) -> String
where
    F: Fn(&str, &str) -> u16 + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::new(status);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let status = Arc::clone(&status);
            let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
                let user = request
                    .headers()
                    .get("x-user")
                    .and_then(|v| v.to_str().ok());
                let code = status(request.uri().path(), user.unwrap_or(""));
                let _: &hyper::Request<hyper::body::Incoming> = &request;
                let response = hyper::Response::builder().status(code);
                let response = response
                    .body(Full::new(Bytes::from_static(b"body")))
                    .unwrap();
                async move { Ok::<_, Infallible>(response) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    format!("http://{address}")
}

fn tenant_shape(hits: HitsField) -> Shape {
    Shape::grpc(
        "shop",
        &["tenant={key},route=/a".to_owned(), "all=yes".to_owned()],
        hits,
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_counts_what_two_servers_answered() {
    let left = Arc::new(AtomicU64::new(30));
    let answer = move |request: &RateLimitRequest| {
        assert_eq!(request.domain, "shop");
        let entry = &request.descriptors[0].entries[0];
        assert_eq!(
            (entry.key.as_str(), entry.value.as_str()),
            ("tenant", "alice")
        );
        let take = |n: u64| n.checked_sub(1);
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => CODE_OK,
            Err(_) => CODE_OVER_LIMIT,
        }
    };
    let answer: Arc<Answer> = Arc::new(answer);
    let targets = [
        serve_grpc(Arc::clone(&answer)).await,
        serve_grpc(answer).await,
    ];
    let report = go(plan(&targets, tenant_shape(HitsField::Request), 200.0, 0.5)).await;
    assert_eq!(
        (report.offered, report.admitted, report.denied),
        (100, 30, 70)
    );
    assert_eq!((report.targets[0].sent, report.targets[1].sent), (50, 50));
    assert_eq!(report.latency.count, 100);
    assert!(report.latency.p50_us > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_reach_the_field_that_was_asked_for() {
    type Seen = (u32, Vec<Option<u64>>);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let log = Arc::clone(&seen);
    let hits = |d: &Descriptor| d.hits_addend.as_ref().map(|h| h.value);
    let target = serve_grpc(Arc::new(move |request: &RateLimitRequest| {
        let each = request.descriptors.iter().map(hits).collect();
        log.lock().unwrap().push((request.hits_addend, each));
        CODE_OK
    }))
    .await;
    for field in [HitsField::Request, HitsField::Descriptor] {
        let mut plan = plan(
            std::slice::from_ref(&target),
            tenant_shape(field),
            100.0,
            0.01,
        );
        plan.mix = "tenants:big=1x7".parse().unwrap();
        assert_eq!(go(plan).await.admitted, 1);
    }
    assert_eq!(
        *seen.lock().unwrap(),
        [(7, vec![None, None]), (0, vec![Some(7), Some(7)])]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_told_apart() {
    let refusing = serve_grpc(Arc::new(|_: &RateLimitRequest| -1)).await;
    let odd = serve_grpc(Arc::new(|_: &RateLimitRequest| 0)).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let targets = [refusing, odd, nobody];
    let report = go(plan(&targets, tenant_shape(HitsField::Request), 60.0, 0.1)).await;
    assert_eq!(report.error_count, 6);
    assert_eq!(report.errors["grpc_resource_exhausted"], 2);
    assert_eq!(report.errors["rls_code_0"], 2);
    assert_eq!(report.errors["grpc_unavailable"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_tells_429_and_5xx_apart() {
    let target = serve_http(|path, user| {
        assert_eq!(user, "alice");
        let number: u64 = path.trim_start_matches("/item/").parse().unwrap();
        [200, 429, 503, 204][usize::try_from(number % 4).unwrap()]
    })
    .await;
    let shape = Shape::http("/item/{n}", &["x-user: {key}".to_owned()]).unwrap();
    let report = go(plan(&[target], shape, 400.0, 0.1)).await;
    assert_eq!(
        (report.admitted, report.denied, report.error_count),
        (20, 10, 10)
    );
    assert_eq!(report.errors["http_503"], 10);
}

/// A server that stalls for 300 ms once: every request that was due meanwhile must show its wait,
/// although only one can be in flight. A closed loop would see a single slow request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_is_seen_by_every_request_due_during_it() {
    let stalled = Arc::new(AtomicU64::new(0));
    let target = serve_http(move |_, _| {
        if stalled.fetch_add(1, Ordering::SeqCst) == 0 {
            // the stall under test: the server's thread does nothing for a while
            std::thread::sleep(Duration::from_millis(300));
        }
        200
    })
    .await;
    let mut plan = plan(&[target], Shape::http("/", &[]).unwrap(), 200.0, 0.5);
    plan.concurrency = 1;
    let report = go(plan).await;
    assert_eq!(report.admitted, 100);
    // 60 requests were due in the stall; the median of all 100 waited in it
    assert!(
        report.latency.p50_us > 50_000.0,
        "p50 {} us",
        report.latency.p50_us
    );
    assert!(report.late >= 50, "late {}", report.late);
    assert!(report.latency.max_us >= 300_000.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_costs_timeouts_and_the_run_still_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let mut plan = plan(&[target], Shape::http("/", &[]).unwrap(), 100.0, 0.2);
    plan.timeout = Duration::from_millis(200);
    plan.concurrency = 4;
    let report = go(plan).await;
    assert_eq!((report.offered, report.admitted), (20, 0));
    assert!(report.errors["timeout"] >= 4);
    assert!(
        report.unsent > 0,
        "what could not be sent in time is reported"
    );
    assert!(report.elapsed_s < 2.0);
    drop(listener);
}
