//! Who may ask the admin server for what.
//!
//! I own the token, and the defence of an address that only this host can reach against web pages
//! that a browser on this host shows. Reading needs no token; writing does, unless the server
//! listens where only this host can reach it and no token is set.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::extract::{Request, State as Shared};
use axum::http::{header, HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refusal;
use crate::config::{AdminToken, Bind};
use crate::member::Member;

/// What is asked of whoever comes in.
#[derive(Debug)]
pub struct Guard {
    token: ArcSwapOption<AdminToken>,
    reach: Reach,
}

/// Who can reach the admin server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Processes of this host that may open the socket's file.
    File,
    /// This host.
    Loopback,
    /// Others.
    Network,
}

/// Why somebody is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    /// The name it asked for is not this server's.
    Name,
    /// A web page of another origin asked.
    Page,
    /// A token is needed, and none can be right.
    NoToken,
    /// The token is missing or wrong.
    Token,
}

impl Guard {
    /// For a server at `bind` with this token.
    pub fn new(bind: Option<&Bind>, token: Option<AdminToken>) -> Self {
        let reach = match bind {
            Some(Bind::Unix(_)) => Reach::File,
            Some(Bind::Tcp(addr)) if addr.ip().is_loopback() => Reach::Loopback,
            _ => Reach::Network,
        };
        let token = ArcSwapOption::from_pointee(token);
        Self { token, reach }
    }

    /// Asks for another token from now on; `None`: for none.
    pub fn set_token(&self, token: Option<AdminToken>) {
        self.token.store(token.map(Arc::new));
    }

    fn admit(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
        // A page of `evil.example` may have that name answered with 127.0.0.1, and then reads as
        // its own what is meant for this host. The Host header still says the name.
        let host = headers.get(header::HOST);
        if self.reach == Reach::Loopback && !host.is_none_or(is_local) {
            return Err(Denied::Name);
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        // Browsers say where a writing request comes from; programs say nothing.
        if let Some(origin) = headers.get(header::ORIGIN) {
            if !is_of(origin, host) {
                return Err(Denied::Page);
            }
        }
        let token = self.token.load();
        let Some(token) = &*token else {
            return match self.reach {
                Reach::File | Reach::Loopback => Ok(()),
                Reach::Network => Err(Denied::NoToken),
            };
        };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| bearer(value.as_bytes()));
        match given {
            Some(given) if token.is(given) => Ok(()),
            _ => Err(Denied::Token),
        }
    }
}

/// `127.0.0.1:9090`, `[::1]:9090`, `localhost:9090`, `x.localhost`: an address, or a name that
/// always means this host.
fn is_local(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.to_ascii_lowercase();
    name.is_empty()
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok()
}

fn is_of(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else {
        return false;
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Lets a request pass to its page, or answers why not.
pub(super) async fn check(
    Shared(member): Shared<Arc<Member>>,
    request: Request,
    next: Next,
) -> Response {
    match member.guard().admit(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(denied) => answer(denied),
    }
}

fn answer(denied: Denied) -> Response {
    let (status, advice) = match denied {
        Denied::Name => (
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers on loopback, and to its address or `localhost` only; set the Host \
             header accordingly",
        ),
        Denied::Page => (
            StatusCode::FORBIDDEN,
            "a web page of another origin may not change anything here",
        ),
        Denied::NoToken => (
            StatusCode::UNAUTHORIZED,
            "changing something from the network needs a token; set admin_token_file, or let \
             admin_bind be a loopback address or a Unix socket",
        ),
        Denied::Token => (
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong; send `Authorization: Bearer TOKEN` with the first line \
             of the file that admin_token_file names",
        ),
    };
    let mut response = refusal(status, advice).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer realm=\"gabiond\"");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(bind: &str, token: Option<&str>) -> Guard {
        let bind = match bind.strip_prefix("unix:") {
            Some(path) => Bind::Unix(path.into()),
            None => Bind::Tcp(bind.parse().unwrap()),
        };
        Guard::new(Some(&bind), token.map(AdminToken::new))
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter();
        lines
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    fn ask(
        guard: &Guard,
        method: Method,
        lines: &[(&'static str, &'static str)],
    ) -> Option<Denied> {
        guard.admit(&method, &headers(lines)).err()
    }

    #[test]
    fn writing_needs_the_token_unless_only_this_host_can_ask() {
        let token = Some("0123456789abcdef");
        let post = |guard: &Guard, value| ask(guard, Method::POST, &[("authorization", value)]);
        for bind in ["127.0.0.1:1", "[::1]:1", "unix:/run/x"] {
            assert_eq!(ask(&guard(bind, None), Method::POST, &[]), None, "{bind}");
            let with = guard(bind, token);
            assert_eq!(ask(&with, Method::POST, &[]), Some(Denied::Token), "{bind}");
        }
        let open = guard("0.0.0.0:1", None);
        assert_eq!(ask(&open, Method::POST, &[]), Some(Denied::NoToken));
        assert_eq!(ask(&open, Method::DELETE, &[]), Some(Denied::NoToken));
        let with = guard("0.0.0.0:1", token);
        assert_eq!(post(&with, "Bearer 0123456789abcdef"), None);
        assert_eq!(post(&with, "bearer  0123456789abcdef "), None);
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeg",
            "Basic 0123456789abcdef",
            "x",
        ] {
            assert_eq!(post(&with, wrong), Some(Denied::Token), "{wrong}");
        }
        let prefix = "Bearer 0123456789abcde";
        assert_eq!(post(&with, prefix), Some(Denied::Token));
        assert_eq!(ask(&with, Method::GET, &[]), None, "reading needs none");
    }

    #[test]
    fn a_web_page_gets_nothing_from_loopback() {
        let guard = guard("127.0.0.1:9090", None);
        for host in [
            "127.0.0.1:9090",
            "localhost:9090",
            "[::1]:9090",
            "10.0.0.7",
            "LOCALHOST",
        ] {
            assert_eq!(ask(&guard, Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.nip",
        ] {
            let denied = ask(&guard, Method::GET, &[("host", host)]);
            assert_eq!(denied, Some(Denied::Name), "{host}");
        }
        let page = [
            ("host", "localhost:9090"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(ask(&guard, Method::POST, &page), Some(Denied::Page));
        let sandbox = [("host", "localhost:9090"), ("origin", "null")];
        assert_eq!(ask(&guard, Method::POST, &sandbox), Some(Denied::Page));
        let own = [
            ("host", "localhost:9090"),
            ("origin", "http://localhost:9090"),
        ];
        assert_eq!(ask(&guard, Method::POST, &own), None);
    }
}
