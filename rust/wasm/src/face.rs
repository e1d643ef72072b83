//! What JavaScript sees: [`Session`] with numbers and texts as JavaScript has them.
//!
//! I own names and conversions, nothing else. `web/src/bridge.d.ts` documents each.

use wasm_bindgen::prelude::*;

use crate::error::{to_json, BridgeError};
use crate::rules::{self, RuleFault, RuleInfo};
use crate::session::Session;

fn said(error: BridgeError) -> JsError {
    JsError::new(&error.to_string())
}

/// A time or a number of events from JavaScript: no fraction, nothing below 0.
#[allow(clippy::cast_possible_truncation)] // what is too large becomes the largest
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum RuleCheck<'r> {
    Good { ok: bool, rules: Vec<&'r RuleInfo> },
    Bad { ok: bool, faults: &'r [RuleFault] },
}

/// Reads rules: JSON of what was understood, or of every fault.
#[wasm_bindgen(js_name = checkRules)]
pub fn check_rules(text: &str, members: u32) -> String {
    let members = usize::try_from(members).unwrap_or(1).max(1);
    match rules::read(text, members) {
        Ok(held) => to_json(&RuleCheck::Good {
            ok: true,
            rules: held.iter().map(|held| &held.info).collect(),
        }),
        Err(faults) => to_json(&RuleCheck::Bad {
            ok: false,
            faults: &faults,
        }),
    }
}

/// JSON list of all presets.
///
/// # Errors
/// None in a build that passed its tests.
#[wasm_bindgen]
pub fn presets() -> Result<String, JsError> {
    let list = crate::presets::list().map_err(said)?;
    Ok(to_json(&list))
}

/// The run of a preset, as JSON.
///
/// # Errors
/// When there is none of that name.
#[wasm_bindgen(js_name = presetRun)]
pub fn preset_run(id: &str) -> Result<String, JsError> {
    crate::presets::text(id).map(str::to_owned).map_err(said)
}

/// A world on a page.
#[wasm_bindgen]
pub struct Simulator {
    session: Session,
}

#[wasm_bindgen]
impl Simulator {
    /// A run, from its JSON, at time 0.
    ///
    /// # Errors
    /// What is wrong, and where.
    #[wasm_bindgen(constructor)]
    pub fn new(json: &str) -> Result<Simulator, JsError> {
        let session = Session::new(json).map_err(said)?;
        Ok(Simulator { session })
    }

    /// See [`Session::info`].
    pub fn info(&self) -> String {
        self.session.info()
    }

    /// Time, nanoseconds.
    #[wasm_bindgen(js_name = nowNs)]
    pub fn now_ns(&mut self) -> f64 {
        self.session.live().now_ns() as f64
    }

    /// Lets time pass; returns the time then.
    pub fn step(&mut self, by_ns: f64, most_events: f64) -> f64 {
        let live = self.session.live();
        live.step(whole(by_ns), whole(most_events)) as f64
    }

    /// One round of gossip; returns the time then.
    #[wasm_bindgen(js_name = stepRound)]
    pub fn step_round(&mut self) -> f64 {
        self.session.live().step_round() as f64
    }

    /// To any time, in slices; returns the time then.
    pub fn seek(&mut self, to_ns: f64, most_events: f64) -> f64 {
        let live = self.session.live();
        live.seek(whole(to_ns), whole(most_events)) as f64
    }

    /// Strikes out what is recorded after now.
    #[wasm_bindgen(js_name = forgetLater)]
    pub fn forget_later(&mut self) {
        self.session.live().forget_later();
    }

    /// Does something now.
    ///
    /// # Errors
    /// Why not.
    pub fn command(&mut self, json: &str) -> Result<String, JsError> {
        self.session.command(json).map_err(said)
    }

    /// See [`Session::frames`].
    pub fn frames(&mut self) -> Vec<f64> {
        self.session.frames()
    }

    /// See [`Session::merges`].
    pub fn merges(&mut self) -> Vec<f64> {
        self.session.merges()
    }

    /// See [`Session::verdicts`].
    pub fn verdicts(&mut self) -> Vec<f64> {
        self.session.verdicts()
    }

    /// See [`Session::focus`].
    pub fn focus(&mut self, rule: u16, key: u32) {
        self.session.focus(rule, key);
    }

    /// See [`Session::members`].
    pub fn members(&self) -> Vec<f64> {
        self.session.members()
    }

    /// See [`Session::cluster`].
    pub fn cluster(&self) -> Vec<f64> {
        self.session.cluster()
    }

    /// See [`Session::cluster_of`].
    #[wasm_bindgen(js_name = clusterOf)]
    pub fn cluster_of(&self, rule: u16) -> Vec<f64> {
        self.session.cluster_of(rule)
    }

    /// See [`Session::cuts`].
    pub fn cuts(&self) -> Vec<f64> {
        self.session.cuts()
    }

    /// See [`Session::links_of`].
    #[wasm_bindgen(js_name = linksOf)]
    pub fn links_of(&self, member: u32) -> String {
        self.session
            .links_of(usize::try_from(member).unwrap_or(usize::MAX))
    }

    /// See [`Session::run_json`].
    pub fn run(&self) -> String {
        self.session.run_json()
    }

    /// See [`Session::scenario`].
    pub fn scenario(&self) -> String {
        self.session.scenario()
    }

    /// See [`Session::violations`].
    pub fn violations(&self) -> String {
        self.session.violations()
    }

    /// See [`Session::trace`].
    pub fn trace(&self) -> String {
        self.session.trace()
    }
}
