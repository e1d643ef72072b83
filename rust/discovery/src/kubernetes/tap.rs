//! What passes between a watch and the API server, seen on its way.
//!
//! I own what the runtime's watcher does not tell: when the server was last heard (a bookmark, too,
//! says that nothing is missing), how long it asks us to wait, and that it ended a watch too soon.
//! I promise that no answer can take more memory than its bound, and that a server which ends every
//! watch at once is not asked in a tight circle. I never change what passes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use kube::Client;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use super::retry::Jitter;
use crate::limits::{
    KUBE_ANSWER_MS, KUBE_MAX_EVENT_BYTES, KUBE_MAX_LIST_BYTES, KUBE_MAX_RETRY_AFTER_MS,
    KUBE_SHORT_WATCH_MS, KUBE_SILENCE_MS,
};
use crate::Health;

const SILENCE: Duration = Duration::from_millis(KUBE_SILENCE_MS);

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// What is known of the way to the server, over all connections.
pub(super) struct Line {
    pub(super) health: Health,
    state: Mutex<State>,
}

struct State {
    jitter: Jitter,
    /// Watches in a row that ended too soon.
    short: u32,
    /// What the last answer asked for.
    retry_after: Option<Duration>,
    /// When a watch was last opened.
    opened: Option<Instant>,
}

impl Line {
    pub(super) fn new(health: Health, jitter: Jitter) -> Arc<Self> {
        let state = State {
            jitter,
            short: 0,
            retry_after: None,
            opened: None,
        };
        Arc::new(Line {
            health,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a watch was opened after `then`.
    pub(super) fn opened_since(&self, then: Instant) -> bool {
        self.state().opened.is_some_and(|opened| opened > then)
    }

    /// The pause after so many failures in a row, or the one that the server asked for.
    pub(super) fn pause(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let mut state = self.state();
        let asked = state.retry_after.take().or(asked);
        let most = Duration::from_millis(KUBE_MAX_RETRY_AFTER_MS);
        let asked = asked.map(|least| state.jitter.beyond(least.min(most)));
        state.jitter.pause(failures).max(asked.unwrap_or_default())
    }

    /// A number that differs between members, below `below`.
    pub(super) fn lot(&self, below: u32) -> u32 {
        self.state().jitter.below(below)
    }

    fn before_watch(&self) -> Duration {
        let mut state = self.state();
        match state.short {
            0 => Duration::ZERO,
            short => state.jitter.pause(short),
        }
    }

    fn answered(&self, response: &Response<Body>, watching: bool) {
        let mut state = self.state();
        if response.status().is_success() {
            if watching {
                // What changed since the version that we named follows at once.
                state.opened = Some(Instant::now());
                self.health.fresh();
            }
            return;
        }
        let seconds = response.headers().get(RETRY_AFTER);
        let seconds = seconds.and_then(|text| text.to_str().ok()?.trim().parse().ok());
        state.retry_after = seconds.map(Duration::from_secs);
    }

    fn ended(&self, lasted: Duration) {
        let mut state = self.state();
        let short = lasted < Duration::from_millis(KUBE_SHORT_WATCH_MS);
        state.short = if short {
            state.short.saturating_add(1)
        } else {
            0
        };
    }
}

/// A client whose answers are looked at.
pub(super) struct Tap {
    client: Client,
    line: Arc<Line>,
}

impl Tap {
    pub(super) fn new(client: Client, line: Arc<Line>) -> Self {
        Tap { client, line }
    }
}

impl Service<Request<Body>> for Tap {
    type Response = Response<Heard>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, line) = (self.client.clone(), Arc::clone(&self.line));
        let query = request.uri().query().unwrap_or_default();
        let watching = query.split('&').any(|part| part.starts_with("watch="));
        Box::pin(async move {
            if watching {
                tokio::time::sleep(line.before_watch()).await;
            }
            let most = Duration::from_millis(KUBE_ANSWER_MS);
            let sent = tokio::time::timeout(most, client.send(request)).await;
            let late = |_| kube::Error::Service(format!("nothing for {most:?}").into());
            let response = sent.map_err(late)??;
            line.answered(&response, watching);
            let good = response.status().is_success();
            Ok(response.map(|body| Heard {
                body,
                line,
                good,
                watching,
                began: Instant::now(),
                silence: Box::pin(tokio::time::sleep(SILENCE)),
                bytes: 0,
            }))
        })
    }
}

/// The body of an answer.
pub(super) struct Heard {
    body: Body,
    line: Arc<Line>,
    /// Whether it is what was asked for, and no refusal.
    good: bool,
    watching: bool,
    began: Instant,
    /// Ends when nothing was heard for too long.
    silence: Pin<Box<Sleep>>,
    /// Bytes of the list, or of the event that is under way.
    bytes: u64,
}

impl Heard {
    fn take(&mut self, data: &Bytes) -> Result<(), Fault> {
        let (most, since) = match self.watching && self.good {
            true => {
                let end = data.iter().rposition(|byte| *byte == b'\n');
                (KUBE_MAX_EVENT_BYTES, end)
            }
            false => (KUBE_MAX_LIST_BYTES, None),
        };
        self.bytes = match since {
            Some(end) => (data.len() - end - 1) as u64,
            None => self.bytes.saturating_add(data.len() as u64),
        };
        if self.bytes > most {
            let what = if self.watching { "an event" } else { "a list" };
            let advice = "name the members' Services (service_allow)";
            return Err(format!("{what} of more than {most} bytes; {advice}").into());
        }
        if self.good {
            self.line.health.fresh();
        }
        Ok(())
    }
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let Poll::Ready(heard) = Pin::new(&mut self.body).poll_frame(context) else {
            std::task::ready!(self.silence.as_mut().poll(context));
            self.line.health.failed("reset");
            return Poll::Ready(Some(Err(format!("nothing for {SILENCE:?}").into())));
        };
        self.silence.as_mut().reset(Instant::now() + SILENCE);
        Poll::Ready(match heard {
            Some(Ok(frame)) => {
                let taken = frame.data_ref().map_or(Ok(()), |data| self.take(data));
                Some(taken.map(|()| frame))
            }
            Some(Err(error)) => {
                // The watcher takes some of these for an end, and says nothing.
                self.line.health.failed("reset");
                Some(Err(error.into()))
            }
            None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        if self.watching && self.good {
            self.line.ended(self.began.elapsed());
        }
    }
}
