//! What a request is told: headers, a line in the log, a response.

use std::ptr;

use gabion_admit::headers::{headers, Families};
use nginx_sys::{
    ngx_http_finalize_request, ngx_http_send_response, ngx_int_t, ngx_list_push, ngx_table_elt_t,
    ngx_uint_t,
};

use super::ask::Asked;
use super::log::Seldom;
use super::{code, log, pool};
use crate::answer::{Answer, Status};
use crate::catalog::Bound;
use crate::lines::fields;

/// What is said of a rejection by a rule that brings no words of its own.
const LINE: &str = "limiting requests";

/// What is said where the limit itself had room.
const ON_SHARE: &str = ", on this member's share";

impl Asked<'_> {
    /// Headers, log line, response.
    pub(super) fn tell(&self, answer: &Answer) -> ngx_int_t {
        let shown = answer.shown.and_then(|(rule, shown)| {
            Some((self.ready.catalog.rules.get(usize::from(rule))?, shown))
        });
        let families = self.loc.level.families();
        let sends = answer.in_headers && families != Families::NONE;
        let mut sent = Ok(());
        if let (true, Some((bound, shown))) = (sends, &shown) {
            sent = headers(families, &bound.text, shown, &mut |name, value| {
                self.header(name, value)
            });
        }
        if let (Status::Rejected, Some((bound, _))) = (answer.status, &shown) {
            let own = bound.rule.denial.iter().flat_map(|denial| &denial.headers);
            for (name, value) in own {
                sent = sent.and_then(|()| self.header(name, value.as_bytes()));
            }
        }
        if sent.is_err() {
            self.line(
                log::WARN,
                "there is no memory for response headers; they are left out",
            );
        }
        if self.logs(log::DEBUG) {
            self.line_of_decision(answer);
        }
        let said = match answer.status {
            Status::Rejected => Some(("", log::of(self.loc.level.severity()))),
            Status::RejectedDryRun => {
                Some((", dry run", log::milder(log::of(self.loc.level.severity()))))
            }
            _ => None,
        };
        if let (Some((how, level)), Some((bound, shown))) = (said, &shown) {
            if self.logs(level) {
                let wait_s = gabion_admit::retry_after_seconds(shown.denied_for_ns.unwrap_or(0));
                let (name, limit) = (&bound.rule.name, shown.reading.limit);
                let what = self.of_request(answer, bound);
                let on = if shown.is_on_share() { ON_SHARE } else { "" };
                let text =
                    format!("{what}{how}, rule \"{name}\", limit {limit}{on}, retry in {wait_s} s");
                self.line(level, &text);
            }
        }
        match answer.status {
            Status::Rejected => self.reject(answer),
            _ => code::DECLINED,
        }
    }

    /// The rule's own body goes before the location's, and that before nginx's page.
    fn reject(&self, answer: &Answer) -> ngx_int_t {
        let status = self.loc.level.status();
        let rule = answer.shown.map(|(rule, _)| usize::from(rule));
        let of_rule = rule.and_then(|at| self.ready.compiled.get(at)?.body);
        let Some(body) = of_rule.or(self.loc.body) else {
            return ngx_int_t::try_from(status).unwrap_or(429);
        };
        // SAFETY: the request is valid; type and value live as long as the configuration. The
        // response ends the request, as for `return` of nginx's own.
        unsafe {
            let (mut kind, mut value) = (body.content_type, body.value);
            let sent = ngx_http_send_response(self.r, status.into(), &mut kind, &mut value);
            ngx_http_finalize_request(self.r, sent);
        }
        code::DONE
    }

    /// What the rule's own line says of the request.
    // spec: pol-21
    fn of_request(&self, answer: &Answer, bound: &Bound) -> String {
        let (Some(line), Some((rule, _))) = (&bound.rule.log, answer.shown) else {
            return LINE.to_owned();
        };
        let message = line.message.as_deref().unwrap_or(LINE);
        let mut text = message.to_owned();
        self.log_values(rule, &mut |values| text += &fields(values.iter().copied()));
        text
    }

    #[cold]
    fn line_of_decision(&self, answer: &Answer) {
        let rules = &self.ready.catalog.rules;
        let shown = answer
            .shown
            .and_then(|(rule, shown)| Some((rules.get(usize::from(rule))?, shown)));
        let rule = shown.map_or(String::new(), |(bound, shown)| {
            let (name, left, limit) = (&bound.rule.name, shown.remaining(), shown.reading.limit);
            format!(", rule \"{name}\", {left} of {limit} left")
        });
        let text = format!("decided: {}{rule}", answer.status.word());
        self.line(log::DEBUG, &text);
    }

    /// A name lives as long as the configuration.
    fn header(&self, name: &str, value: &[u8]) -> Result<(), ()> {
        // SAFETY: the request is valid; the list gives room for one entry, which is cleared, since
        // later versions have a field more.
        unsafe {
            let entry = ngx_list_push(&mut (*self.r).headers_out.headers).cast::<ngx_table_elt_t>();
            if entry.is_null() {
                return Err(());
            }
            ptr::write_bytes(entry, 0, 1); // a hash of 0: left out, if the copy below fails
            (*entry).key = pool::lasting(name);
            (*entry).value = pool::copied((*self.r).pool, value).ok_or(())?;
            (*entry).hash = 1;
        }
        Ok(())
    }

    fn logs(&self, level: ngx_uint_t) -> bool {
        // SAFETY: a request's connection and its log are valid.
        unsafe { (*(*(*self.r).connection).log).log_level >= level }
    }

    pub(super) fn line(&self, level: ngx_uint_t, text: &str) {
        // SAFETY: a request's connection and its log are valid.
        unsafe { log::line((*(*self.r).connection).log, level, text) };
    }

    #[cold]
    pub(super) fn seldom(&self, kind: &Seldom, text: &str) {
        self.seldom_of(kind, &|| text.to_owned());
    }

    /// As [`Asked::seldom`]; the text is made when it is written.
    #[cold]
    pub(super) fn seldom_of(&self, kind: &Seldom, text: &dyn Fn() -> String) {
        if let Some(held_back) = kind.pass() {
            self.line(
                log::WARN,
                &format!("{} ({held_back} more were not logged)", text()),
            );
        }
    }
}
