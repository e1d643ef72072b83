//! Where the attributes of requests come from.
//!
//! I own the defaults of well-known attributes. I promise that an attribute which rules ask for has
//! a text of nginx, or that the error says which to write.

use gabion_rule::policy::yaml::nearest;
use gabion_rule::{Matching, RuleTable};

use crate::error::ConfError;
use crate::limits::BINDS_MAX;
use crate::settings::Settings;

/// Where one attribute comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The attribute.
    pub name: String,
    /// nginx text.
    pub template: String,
    /// Whether it is the status, which there is only once the response is known.
    pub is_status: bool,
}

/// What a key without `gabion_bind` is, beside the variable of its own name.
pub(crate) const DEFAULTS: [(&str, &str); 6] = [
    ("path", "$uri"),
    ("method", "$request_method"),
    ("host", "$host"),
    ("peer", "$remote_addr"),
    ("forwarded", "$http_x_forwarded_for"),
    (STATUS, "$status"),
];
const STATUS: &str = "status";

/// The texts by slot; none when no level asks for attributes.
pub(super) fn of(
    table: &RuleTable,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Vec<SourceText>, ConfError> {
    let named = &settings.named;
    let mut requests = table
        .rules()
        .iter()
        .filter(|r| r.matching == Matching::Request);
    let asks = !named.domains.is_empty() || requests.any(|r| named.rules.contains(&r.name));
    let names = table.sources();
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    for bind in &settings.binds {
        if names.find(bind.key.as_bytes()).is_none() {
            let known: Vec<String> = names.iter().map(text).collect();
            let near = nearest(&bind.key, known.iter().map(String::as_str));
            let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
            notices.push(format!(
                "\"gabion_bind\" value \"{}\": no rule asks for this attribute{near} (at {})",
                bind.key, bind.place
            ));
        }
    }
    if !asks {
        return Ok(Vec::new());
    }
    if names.iter().len() > BINDS_MAX {
        let why = format!("its rules ask for more than {BINDS_MAX} attributes");
        return Err(ConfError::new("gabion_rules_file", "", why));
    }
    names
        .iter()
        .map(|name| source(&text(name), settings))
        .collect()
}

fn source(name: &str, settings: &Settings) -> Result<SourceText, ConfError> {
    let bound = settings.binds.iter().find(|bind| bind.key == name);
    let default = DEFAULTS.iter().find(|(key, _)| *key == name);
    let is_variable = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let template = match (bound, default) {
        (Some(bind), _) => bind.template.clone(),
        (None, Some((_, template))) => (*template).to_owned(),
        (None, None) if is_variable => format!("${{{name}}}"),
        (None, None) => {
            let why = format!(
                "nothing says where this attribute comes from; write gabion_bind {name} $variable"
            );
            return Err(ConfError::new("gabion_bind", name, why));
        }
    };
    Ok(SourceText {
        name: name.to_owned(),
        template,
        is_status: name == STATUS,
    })
}
