//! Every decision in the log, for who wants them all.
//!
//! I own these lines. They cost what logging costs: nobody but somebody who looks for something
//! wants them, so they are at level `debug`, and there is one look at that level per request else.

use super::own_words::as_json;
use super::text::Shower;
use super::Seen;
use crate::tally::Said;

/// Target of the lines: `--log info,gabion::decisions=debug` shows them and nothing else.
pub(crate) const TARGET: &str = "gabion::decisions";

/// Whether somebody wants them.
#[inline]
pub(crate) fn are_shown() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

/// Writes what a rule said about one descriptor.
pub(super) fn show(seen: &Seen<'_>, shower: &Shower) {
    let message = match seen.said {
        Said::Allowed => "allowed",
        Said::Denied => "denied",
        Said::WouldDeny => "would be denied",
    };
    tracing::debug!(
        target: TARGET,
        shown = as_json(&seen.log.fields(shower)),
        rule = seen.rule,
        domain = seen.domain,
        key = shower.entries(seen.entries.iter().copied()).0.as_str(),
        hits = seen.hits,
        used = seen.reading.used,
        limit = seen.reading.limit,
        "{message}",
    );
}
