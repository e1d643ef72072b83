//! The admin server: what operators, probes and Prometheus ask a member.
//!
//! I own the HTTP face. `guard` says who may ask, `keys` shows rules and keys, `actions` is what
//! may be changed; `docs/operating.md` lists every address. I promise that a GET changes nothing. I
//! never decide a request.

mod actions;
mod explain;
mod guard;
mod keys;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{header, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{middleware, Json, Router};
use serde_json::json;

pub use guard::Guard;

use crate::member::{Member, State};
use crate::metrics::{self, Form};
use crate::snapshot;

const INDEX: &str = "\
gabiond
GET  /healthz   200 while the process serves
GET  /readyz    200 while it wants traffic
GET  /metrics   counters for Prometheus
GET  /snapshot  its state as JSON
GET  /rules     its rules with their counts as JSON; ?domain=D&rule=NAME for some of them
GET  /keys      the most used keys of a rule as JSON; ?rule=NAME, &domain=D, &top=N
GET  /explain   what would happen to a request; ?domain=D&descriptor=key=value,key=value&hits=N
GET  /flags     the declared flags as JSON; /flags/NAME for one
POST /flags/NAME?value=on|off|25%|default    sets a flag
POST /reset?limiter=NAME    all its counters start afresh; &domain=D, &entry=KEY=VALUE
POST /reload    reads the configuration again, and says what became of it
";

/// The routes over one member.
pub fn router(member: Arc<Member>) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route(
            "/snapshot",
            get(|Shared(member): Shared<Arc<Member>>| async move { Json(snapshot::of(&member)) }),
        )
        .route("/metrics", get(scrape))
        .route("/rules", get(keys::rules))
        .route("/keys", get(keys::keys))
        .route("/explain", get(explain::page))
        .route("/flags", get(actions::flags))
        .route("/flags/{name}", get(actions::flag).post(actions::set_flag))
        .route("/reset", post(actions::reset))
        .route("/reload", post(reload))
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "no such page; GET / lists all") })
        .layer(middleware::from_fn_with_state(
            Arc::clone(&member),
            guard::check,
        ))
        .with_state(member)
}

/// An error for people and programs: what is wrong and what to do.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

fn refusal(status: StatusCode, error: impl Into<String>) -> Refusal {
    Refusal(status, error.into())
}

async fn scrape(Shared(member): Shared<Arc<Member>>, headers: HeaderMap) -> Response {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let form = Form::accepted_by(accept.unwrap_or_default());
    // It looks at many rows: not on a thread that serves.
    let page = tokio::task::spawn_blocking(move || metrics::render(member, form)).await;
    match page {
        Ok(page) => ([(header::CONTENT_TYPE, form.content_type())], page).into_response(),
        Err(_panic) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn reload(Shared(member): Shared<Arc<Member>>) -> Response {
    let Some(reloader) = member.reloader() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "it is still starting; ask again",
        )
        .into_response();
    };
    match reloader.ask_and_wait("POST /reload").await {
        Ok(done) => Json(json!({ "done": done })).into_response(),
        Err(faults) => refusal(StatusCode::CONFLICT, faults).into_response(),
    }
}

async fn ready(Shared(member): Shared<Arc<Member>>) -> Response {
    let state = member.state();
    let code = match state {
        State::Ready => StatusCode::OK,
        State::Starting | State::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", state.word())).into_response()
}
