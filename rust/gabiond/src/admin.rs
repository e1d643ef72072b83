//! The admin server: `/healthz`, `/readyz`, `/snapshot`.
//!
//! I own the HTTP face for operators and probes. I only read: nothing here changes a counter.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{header, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::member::{Member, State};
use crate::metrics::{self, Form};
use crate::snapshot;

const INDEX: &str =
    "gabiond\n/healthz   200 while the process serves\n/readyz    200 while it wants \
                     traffic\n/snapshot  its state as JSON\n";

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
        .with_state(member)
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

async fn ready(Shared(member): Shared<Arc<Member>>) -> Response {
    let state = member.state();
    let code = match state {
        State::Ready => StatusCode::OK,
        State::Starting | State::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", state.word())).into_response()
}
