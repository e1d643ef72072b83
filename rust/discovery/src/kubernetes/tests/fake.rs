//! An API server for tests: lists and watches EndpointSlices, sends bookmarks, forgets old
//! versions, and answers wrongly when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{json, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::kubernetes::slice::SERVICE_LABEL;

pub(super) type Answered = Result<Response<UnsyncBoxBody<Bytes, io::Error>>, io::Error>;

/// What a request is answered with instead of the truth.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Status, headers, body.
    Status(u16, Vec<(&'static str, &'static str)>, String),
    /// No connection.
    Refused,
    /// A watch that ends at once, a list that never comes.
    Nothing,
    /// The same byte without end.
    Endless(u8),
}

impl Answer {
    pub(super) fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Answer::Status(code, Vec::new(), body.to_string())
    }
}

struct Watcher {
    namespace: String,
    services: Vec<String>,
    events: mpsc::UnboundedSender<Result<String, io::ErrorKind>>,
}

#[derive(Default)]
pub(super) struct World {
    pub(super) version: u64,
    /// Versions below are forgotten.
    pub(super) oldest: u64,
    slices: BTreeMap<(String, String), Value>,
    log: Vec<(u64, &'static str, Value)>,
    watchers: Vec<Watcher>,
    /// The next answers.
    pub(super) next: VecDeque<Answer>,
    /// The answer to every request.
    pub(super) always: Option<Answer>,
    /// The token that is accepted.
    pub(super) token: Option<String>,
    /// Requests: when, whether a watch, and the whole query.
    pub(super) asked: Vec<(Instant, bool, String)>,
}

#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<World>>);

/// A slice of a Service: addresses with the uid of their pods ("" for none).
pub(super) fn slice(service: &str, port: &str, number: u16, ends: &[(&str, &str)]) -> Value {
    let family = match ends.first() {
        Some((ip, _)) if ip.contains(':') => "IPv6",
        _ => "IPv4",
    };
    let ends = ends.iter().map(|(ip, uid)| match *uid {
        "" => json!({ "addresses": [ip], "conditions": { "ready": true } }),
        uid => json!({
            "addresses": [ip],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": "n1",
            "targetRef": { "kind": "Pod", "name": uid, "namespace": "here", "uid": uid },
        }),
    });
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "labels": { SERVICE_LABEL: service } },
        "addressType": family,
        "ports": [{ "name": port, "port": number, "protocol": "UDP" }],
        "endpoints": ends.collect::<Vec<_>>(),
    })
}

impl Fake {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Makes or replaces a slice.
    pub(super) fn put(&self, namespace: &str, name: &str, mut slice: Value) {
        let mut world = self.world();
        world.version += 1;
        let version = world.version;
        slice["metadata"]["namespace"] = namespace.into();
        slice["metadata"]["name"] = name.into();
        slice["metadata"]["resourceVersion"] = version.to_string().into();
        let key = (namespace.to_owned(), name.to_owned());
        let new = world.slices.insert(key, slice.clone()).is_none();
        world.tell(if new { "ADDED" } else { "MODIFIED" }, slice);
    }

    pub(super) fn remove(&self, namespace: &str, name: &str) {
        let mut world = self.world();
        let key = (namespace.to_owned(), name.to_owned());
        let mut slice = world.slices.remove(&key).expect("there is such a slice");
        world.version += 1;
        slice["metadata"]["resourceVersion"] = world.version.to_string().into();
        world.tell("DELETED", slice);
    }

    /// Ends all watches: in order, or by this fault.
    pub(super) fn cut(&self, fault: Option<io::ErrorKind>) {
        for watcher in self.world().watchers.drain(..) {
            if let Some(kind) = fault {
                let _ = watcher.events.send(Err(kind));
            }
        }
    }

    /// Sends a line to all watches.
    pub(super) fn line(&self, line: &str) {
        for watcher in &self.world().watchers {
            let _ = watcher.events.send(Ok(line.to_owned()));
        }
    }

    pub(super) fn lists(&self) -> usize {
        self.world()
            .asked
            .iter()
            .filter(|(_, watch, _)| !watch)
            .count()
    }

    pub(super) fn handle<B>(&self, request: &Request<B>) -> Answered {
        let uri = request.uri();
        let query: BTreeMap<String, String> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), plain(value)))
            .collect();
        let watch = query.contains_key("watch");
        let mut world = self.world();
        let said = uri.query().unwrap_or_default().to_owned();
        world.asked.push((Instant::now(), watch, said));
        if let Some(token) = &world.token {
            let sent = request.headers().get(http::header::AUTHORIZATION);
            if sent.and_then(|s| s.to_str().ok()) != Some(&format!("Bearer {token}")) {
                let refusal = Answer::status(401, "Unauthorized", "Unauthorized");
                return wrong(&refusal);
            }
        }
        let answer = world.next.pop_front().or(world.always.clone());
        if let Some(answer) = answer {
            return wrong(&answer);
        }
        let path: Vec<&str> = uri.path().split('/').collect();
        let namespace = (*path.get(5).expect("a namespace")).to_owned();
        let services = query
            .get("labelSelector")
            .map_or_else(Vec::new, |selector| {
                let names = selector
                    .split_once('(')
                    .expect("a set")
                    .1
                    .trim_end_matches(')');
                names
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .collect()
            });
        if watch {
            let from = query["resourceVersion"].parse().unwrap_or(0);
            let seconds = query["timeoutSeconds"].parse().unwrap_or(1);
            return Ok(self.watch(&mut world, namespace, services, from, seconds));
        }
        let items = world.slices.values();
        let items: Vec<&Value> = items
            .filter(|slice| fits(slice, &namespace, &services))
            .collect();
        let list = json!({
            "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
            "metadata": { "resourceVersion": world.version.to_string() }, "items": items,
        });
        Ok(whole(200, list.to_string()))
    }

    fn watch(
        &self,
        world: &mut World,
        namespace: String,
        services: Vec<String>,
        from: u64,
        seconds: u64,
    ) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let (events, received) = mpsc::unbounded_channel();
        if from < world.oldest {
            let _ = events.send(Ok(gone()));
        } else {
            for (version, kind, slice) in &world.log {
                if *version > from && fits(slice, &namespace, &services) {
                    let _ = events.send(Ok(event(kind, slice)));
                }
            }
            world.watchers.push(Watcher {
                namespace,
                services,
                events,
            });
        }
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let live = stream::unfold(
            (received, self.clone()),
            move |(mut received, fake)| async move {
                let minute = tokio::time::sleep(Duration::from_secs(60));
                let line = tokio::select! {
                    event = received.recv() => event?,
                    () = minute => Ok(bookmark(fake.world().version)),
                    () = tokio::time::sleep_until(deadline) => return None,
                };
                let frame = line.map(|line| Frame::data(Bytes::from(line)));
                Some((frame.map_err(io::Error::from), (received, fake)))
            },
        );
        let body = BodyExt::boxed_unsync(StreamBody::new(live));
        Response::new(body)
    }
}

impl World {
    fn tell(&mut self, kind: &'static str, slice: Value) {
        let line = event(kind, &slice);
        self.watchers.retain(|watcher| {
            !fits(&slice, &watcher.namespace, &watcher.services)
                || watcher.events.send(Ok(line.clone())).is_ok()
        });
        self.log.push((self.version, kind, slice));
    }
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

fn bookmark(version: u64) -> String {
    let object = json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        "endpoints": null, "ports": null, "addressType": "",
    });
    event("BOOKMARK", &object)
}

/// What a watch says of a version that is forgotten.
pub(super) fn gone() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    event("ERROR", &status)
}

fn fits(slice: &Value, namespace: &str, services: &[String]) -> bool {
    let service = &slice["metadata"]["labels"][SERVICE_LABEL];
    let wanted = || services.iter().any(|name| service == name.as_str());
    slice["metadata"]["namespace"] == namespace && (services.is_empty() || wanted())
}

fn plain(text: &str) -> String {
    let mut text = text.replace('+', " ");
    for (code, letter) in [("%2C", ","), ("%28", "("), ("%29", ")"), ("%2F", "/")] {
        text = text.replace(code, letter);
    }
    text
}

fn whole(status: u16, body: String) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
    let never = |never: Infallible| match never {};
    let body = BodyExt::boxed_unsync(Full::new(Bytes::from(body)).map_err(never));
    Response::builder().status(status).body(body).unwrap()
}

fn wrong(answer: &Answer) -> Answered {
    match answer {
        Answer::Status(status, headers, body) => {
            let mut response = whole(*status, body.clone());
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            Ok(response)
        }
        Answer::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
        Answer::Nothing => Ok(whole(200, String::new())),
        Answer::Endless(byte) => {
            let block = Bytes::from(vec![*byte; 1 << 16]);
            let blocks = stream::repeat(block).map(|block| Ok(Frame::data(block)));
            Ok(Response::new(BodyExt::boxed_unsync(StreamBody::new(
                blocks,
            ))))
        }
    }
}

/// The server without a network between.
pub(super) struct InMemory(pub(super) Fake);

impl tower_service::Service<Request<Body>> for InMemory {
    type Response = Response<UnsyncBoxBody<Bytes, io::Error>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn std::future::Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.handle(&request);
        Box::pin(std::future::ready(answer))
    }
}
