//! The watch over the slices of one namespace.
//!
//! I own one list and the watch that follows it, and what is done when they fail. I promise that a
//! failure takes nothing away, is counted by kind, is told once in words that name the object and
//! the way out, and is tried again after a pause. I never end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt};
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::Instant;

use super::advice;
use super::place::Place;
use super::slice::{Kept, Slice, SERVICE_LABEL};
use super::tap::{Line, Tap};
use super::words::{within, GossipPort, ServiceName};
use crate::error::{deepest, shown, DiscoveryError, Thinned};
use crate::limits::{KUBE_FAILURES_BEFORE_ANEW, KUBE_WATCH_S};

/// How the API server is reached.
#[derive(Clone)]
pub(super) enum Access {
    /// As the environment says.
    At(Box<Place>),
    /// Through a client that a test made.
    #[cfg(test)]
    Through(Connection),
}

impl Access {
    async fn connect(&self) -> Result<Connection, DiscoveryError> {
        match self {
            Access::At(place) => place.connect().await,
            #[cfg(test)]
            Access::Through(connection) => Ok(connection.clone()),
        }
    }
}

/// A client, and what it was made for.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// The own namespace.
    pub(super) namespace: String,
    /// The server's address, for people.
    pub(super) server: String,
}

/// What the watch of a namespace tells.
pub(super) enum News {
    /// The namespace's name, and all its slices by their names.
    All(String, BTreeMap<Box<str>, Kept>),
    /// One slice is new or another.
    One(Box<str>, Kept),
    /// One slice is gone.
    Gone(Box<str>),
}

const NO_SLICE: &str =
    "the answer is no EndpointSlice; is this an API server, or a proxy before it?";

type Events = BoxStream<'static, watcher::Result<Event<Slice>>>;

/// One namespace.
pub(super) struct Space {
    access: Access,
    /// `None`: the own one.
    name: Option<String>,
    services: Vec<ServiceName>,
    port: GossipPort,
    thinned: Thinned,
    line: Arc<Line>,
    connection: Option<Connection>,
    events: Option<Events>,
    /// Slices of a list that is under way.
    listed: BTreeMap<Box<str>, Kept>,
    /// Failures in a row, and when the last one was.
    failures: u32,
    failed_at: Option<Instant>,
}

impl Space {
    pub(super) fn new(
        access: Access,
        name: Option<String>,
        services: Vec<ServiceName>,
        port: GossipPort,
        thinned: Thinned,
        line: Arc<Line>,
    ) -> Self {
        Space {
            access,
            name,
            services,
            port,
            thinned,
            line,
            connection: None,
            events: None,
            listed: BTreeMap::new(),
            failures: 0,
            failed_at: None,
        }
    }

    /// The next news; failures only delay it.
    pub(super) async fn next(&mut self) -> News {
        loop {
            let Some(events) = &mut self.events else {
                if let Err(problem) = self.open().await {
                    self.rest(Failure::anew(problem)).await;
                }
                continue;
            };
            match events.next().await {
                Some(Ok(event)) => {
                    if let Some(news) = self.take(event) {
                        return news;
                    }
                }
                Some(Err(error)) => {
                    let failure = self.judge(error);
                    self.rest(failure).await;
                }
                None => self.events = None,
            }
        }
    }

    async fn open(&mut self) -> Result<(), DiscoveryError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.access.connect().await?,
        };
        let namespace = self
            .name
            .get_or_insert_with(|| connection.namespace.clone());
        let mut wanted = within(&self.services, namespace);
        wanted.dedup();
        let names: Vec<&str> = wanted.iter().map(|service| service.name.as_str()).collect();
        // Not all at one time, after the server has started.
        let timeout_s = KUBE_WATCH_S - self.line.lot(KUBE_WATCH_S / 10);
        // What the server has in memory is good enough to begin with: the watch goes on from there.
        let mut config = watcher::Config::default().any_semantic().timeout(timeout_s);
        if !names.is_empty() {
            config = config.labels(&format!("{SERVICE_LABEL} in ({})", names.join(",")));
        }
        let tap = Tap::new(connection.client.clone(), Arc::clone(&self.line));
        let client = Client::new(tap, namespace.clone());
        let slices: Api<Slice> = Api::namespaced(client, namespace);
        self.events = Some(watcher::watcher(slices, config).boxed());
        self.connection = Some(connection);
        Ok(())
    }

    fn take(&mut self, event: Event<Slice>) -> Option<News> {
        let keep = |slice: Slice| {
            let name = slice.name();
            (name, slice.keep(&self.port, !self.services.is_empty()))
        };
        match event {
            Event::Init => {
                self.listed.clear();
                None
            }
            Event::InitApply(slice) => {
                let (name, kept) = keep(slice);
                self.listed.insert(name, kept);
                None
            }
            Event::InitDone => {
                let name = self.name.clone().unwrap_or_default();
                Some(News::All(name, std::mem::take(&mut self.listed)))
            }
            Event::Apply(slice) => {
                let (name, kept) = keep(slice);
                Some(News::One(name, kept))
            }
            Event::Delete(slice) => Some(News::Gone(slice.name())),
        }
    }

    /// Tells a failure, and waits until it is worth trying again.
    async fn rest(&mut self, failure: Failure) {
        if self
            .failed_at
            .is_none_or(|then| self.line.opened_since(then))
        {
            // There was a watch since the last failure: this is another story.
            self.failures = 0;
            self.thinned.clear();
        }
        self.failures = self.failures.saturating_add(1);
        self.failed_at = Some(Instant::now());
        match failure.problem {
            Some(problem) => self.thinned.report(problem),
            None => self.line.health.failed(failure.kind),
        }
        let many = self.failures.checked_rem(KUBE_FAILURES_BEFORE_ANEW) == Some(0);
        if failure.then != Then::Resume || many {
            self.events = None;
        }
        if failure.then == Then::Anew || many {
            self.connection = None;
        }
        let pause = self.line.pause(self.failures, failure.asked);
        tokio::time::sleep(pause).await;
    }

    fn judge(&self, error: watcher::Error) -> Failure {
        use watcher::Error as E;
        let error = match error {
            E::WatchError(status) => return self.refused(&status),
            E::InitialListFailed(error) | E::WatchStartFailed(error) | E::WatchFailed(error) => {
                error
            }
            E::NoResourceVersion => {
                let why = "the answer has no resourceVersion: is this an API server?";
                return self.failure("garbage", why.to_owned(), Then::List);
            }
        };
        match error {
            kube::Error::Api(status) => self.refused(&status),
            kube::Error::SerdeError(error) => {
                self.failure("garbage", format!("{NO_SLICE} ({error})"), Then::List)
            }
            kube::Error::FromUtf8(error) => self.failure(
                "garbage",
                format!("the answer is no text: {error}"),
                Then::List,
            ),
            kube::Error::ReadEvents(error) => self.failure(
                "broken_off",
                format!("the watch broke off: {error}"),
                Then::Resume,
            ),
            error => {
                let why = format!("no answer: {}", deepest(&error));
                self.failure("unreachable", why, Then::Resume)
            }
        }
    }

    /// The server answered, and said no.
    fn refused(&self, status: &Status) -> Failure {
        let said = shown(&status.message);
        let asked = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        let asked = (asked > 0).then(|| Duration::from_secs(u64::from(asked)));
        let mut failure = match status.code {
            401 => {
                let why = format!(
                    "401 {said}: the token is not accepted; it is read again. The kubelet renews a \
                     pod's token: look whether its ServiceAccount still exists, and restart the \
                     pod if the token stays old"
                );
                self.failure("unauthorized", why, Then::Anew)
            }
            403 if status.message.contains("\"system:anonymous\"") => {
                let why = format!(
                    "403 {said}: the request had no credentials; mount the service account's \
                     token, or give the kubeconfig's user one"
                );
                self.failure("unauthorized", why, Then::Anew)
            }
            403 => {
                let namespace = self.name.clone().unwrap_or_default();
                let role = advice::role(&namespace, &status.message);
                let why = said;
                let problem = DiscoveryError::Forbidden {
                    namespace,
                    why,
                    role,
                };
                Failure {
                    problem: Some(problem),
                    ..self.failure("forbidden", String::new(), Then::Resume)
                }
            }
            404 => {
                let why = format!(
                    "404 {said}: it has no discovery.k8s.io/v1; Kubernetes 1.21 or later is needed"
                );
                self.failure("not_found", why, Then::List)
            }
            // Ordinary: the list is asked for again, and nobody need know.
            410 => Failure {
                problem: None,
                ..self.failure("expired", String::new(), Then::List)
            },
            // A line that is no event at all is read as a status without anything.
            0 => self.failure("garbage", NO_SLICE.to_owned(), Then::List),
            429 => self.failure("throttled", format!("429 {said}"), Then::Resume),
            code => self.failure("server_error", format!("{code} {said}"), Then::Resume),
        };
        failure.asked = asked;
        failure
    }

    fn failure(&self, kind: &'static str, why: String, then: Then) -> Failure {
        let server = self.connection.as_ref().map(|c| c.server.clone());
        let problem = DiscoveryError::Server {
            kind,
            server: server.unwrap_or_default(),
            namespace: self.name.clone().unwrap_or_default(),
            why: shown(&why),
        };
        Failure {
            kind,
            problem: Some(problem),
            asked: None,
            then,
        }
    }
}

/// What failed.
struct Failure {
    kind: &'static str,
    /// What to say; `None`: it is only counted.
    problem: Option<DiscoveryError>,
    /// How long the server asks to wait.
    asked: Option<Duration>,
    then: Then,
}

impl Failure {
    fn anew(problem: DiscoveryError) -> Self {
        Failure {
            kind: problem.kind(),
            problem: Some(problem),
            asked: None,
            then: Then::Anew,
        }
    }
}

/// From where to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// From what was seen last.
    Resume,
    /// From a new list.
    List,
    /// From new credentials.
    Anew,
}
