//! Environment variables laid over the file.
//!
//! I own the mapping `GABION_<SECTION>_<KEY>` and what is done with a variable that no setting has.
//! I promise that a variable goes through the same checks as the file, and that a slip of the pen
//! is refused. I never read the process's environment myself: the caller hands it in.

use gabion_rule::policy::yaml::{nearest, Entry, Node, Pos, Value};
use gabion_rule::policy::PolicyError;
use gabion_rule::Place;

use super::schema::{variable, LISTS, SECTIONS};

/// Variables of gabiond that are no settings of the file.
const OTHERS: [&str; 3] = ["GABION_LOG", "GABION_MEMBER", "GABION_TOKEN_FILE"];

/// The `GABION_*` variables of an environment, sorted by name.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    all: Vec<(String, String)>,
}

impl Variables {
    /// Takes the `GABION_*` variables out of an environment.
    pub fn new(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut all: Vec<(String, String)> = environment
            .into_iter()
            .filter(|(name, _)| name.starts_with("GABION_"))
            .collect();
        all.sort();
        Self { all }
    }

    /// Sets a variable, whatever the environment has.
    pub fn set(&mut self, name: &str, value: &str) {
        self.all.retain(|(known, _)| known != name);
        self.set_default(name, value);
    }

    /// Sets a variable, unless the environment has it already.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if !self.all.iter().any(|(known, _)| known == name) {
            self.all.push((name.to_owned(), value.to_owned()));
            self.all.sort();
        }
    }

    /// The variables of this process. One that is not UTF-8 is taken with replacement characters,
    /// and then refused by its setting's own check.
    pub fn of_process() -> Self {
        let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
        Self::new(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Puts the variables into the tree of the file. Returns notices about variables that mean
    /// nothing.
    pub(super) fn lay_over(&self, root: &mut Node) -> Result<Vec<String>, Vec<PolicyError>> {
        let (mut notices, mut errors) = (Vec::new(), Vec::new());
        for (index, (name, value)) in self.all.iter().enumerate() {
            match setting_of(name) {
                Some((section, key)) => put(root, section, key, value, origin(index)),
                None if OTHERS.contains(&name.as_str()) || is_service_link(name, value) => {}
                None => match unknown(name) {
                    Ok(notice) => notices.push(notice),
                    Err(error) => errors.push(error),
                },
            }
        }
        if errors.is_empty() {
            Ok(notices)
        } else {
            Err(errors)
        }
    }

    /// Replaces places that [`Variables::lay_over`] made up by the names of the variables.
    pub(super) fn name_origins(&self, mut errors: Vec<PolicyError>) -> Vec<PolicyError> {
        for error in errors.iter_mut().filter(|error| error.place.line == 0) {
            let index = usize::try_from(error.place.column).unwrap_or(usize::MAX);
            if let Some((name, _)) = index.checked_sub(1).and_then(|index| self.all.get(index)) {
                error.place = environment_place(name);
            }
        }
        errors
    }
}

/// A position that no file has: line 0, and the number of the variable as the column.
fn origin(index: usize) -> Pos {
    Pos {
        line: 0,
        column: u32::try_from(index.saturating_add(1)).unwrap_or(u32::MAX),
    }
}

fn environment_place(name: &str) -> Place {
    Place::new(format!("environment variable {name}"), 0, 0)
}

fn setting_of(name: &str) -> Option<(&'static str, &'static str)> {
    SECTIONS
        .iter()
        .flat_map(|(section, keys)| keys.iter().map(move |key| (*section, *key)))
        .find(|(section, key)| variable(section, key) == name)
}

fn put(root: &mut Node, section: &str, key: &str, text: &str, pos: Pos) {
    let Some(top) = entries(root, pos) else {
        return;
    };
    let map = if section.is_empty() {
        top
    } else {
        let child = child(top, section, pos);
        match entries(child, pos) {
            Some(map) => map,
            None => return, // not a mapping: the reader reports it at its place in the file
        }
    };
    let value = if LISTS.contains(&(section, key)) {
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        Value::List(
            items
                .map(|item| Node {
                    pos,
                    value: Value::Text(item.to_owned()),
                })
                .collect(),
        )
    } else {
        Value::Text(text.to_owned())
    };
    *child(map, key, pos) = Node { pos, value };
}

/// The entries of a mapping; nothing becomes an empty mapping.
fn entries(node: &mut Node, pos: Pos) -> Option<&mut Vec<Entry>> {
    if node.value == Value::Null {
        *node = Node {
            pos,
            value: Value::Map(Vec::new()),
        };
    }
    match &mut node.value {
        Value::Map(entries) => Some(entries),
        _ => None,
    }
}

fn child<'m>(map: &'m mut Vec<Entry>, key: &str, pos: Pos) -> &'m mut Node {
    let at = map
        .iter()
        .position(|entry| entry.key == key)
        .unwrap_or_else(|| {
            let value = Node {
                pos,
                value: Value::Null,
            };
            map.push(Entry {
                key: key.to_owned(),
                pos,
                value,
            });
            map.len() - 1
        });
    &mut map[at].value
}

/// What Kubernetes and Docker put into the environment of whatever runs beside a service that is
/// called "gabion" (`GABION_PORT_8081_TCP_ADDR` and such). It is no setting and no slip.
fn is_service_link(name: &str, value: &str) -> bool {
    let words: Vec<&str> = name.split('_').skip(1).collect();
    words.contains(&"SERVICE") && (words.contains(&"HOST") || words.contains(&"PORT"))
        || words.windows(2).any(|pair| {
            pair[0] == "PORT" && !pair[1].is_empty() && pair[1].bytes().all(|b| b.is_ascii_digit())
        })
        || words.last() == Some(&"PORT")
            && (value.starts_with("tcp://") || value.starts_with("udp://"))
}

/// A variable that no setting has: an error when it is nearly one, else a notice.
fn unknown(name: &str) -> Result<String, PolicyError> {
    let known: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(section, keys)| keys.iter().map(move |key| variable(section, key)))
        .collect();
    if name == "GABION_LIMITS" {
        return Err(PolicyError {
            place: environment_place(name),
            key: String::new(),
            message: "limits are written in the file; a variable cannot hold them".to_owned(),
            suggestion: None,
        });
    }
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => Err(PolicyError {
            place: environment_place(name),
            key: String::new(),
            message: "no setting has this name".to_owned(),
            suggestion: Some(near.to_owned()),
        }),
        None => Ok(format!(
            "environment variable {name}: no setting has this name; it is ignored"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_section_and_key_joined() {
        assert_eq!(setting_of("GABION_ENVOY_BIND"), Some(("", "envoy_bind")));
        assert_eq!(
            setting_of("GABION_GOSSIP_CLUSTER_ID"),
            Some(("gossip", "cluster_id"))
        );
        assert_eq!(
            setting_of("GABION_DISCOVERY_STATIC"),
            Some(("discovery", "static"))
        );
        assert_eq!(setting_of("GABION_BIND"), None);
    }

    #[test]
    fn no_two_settings_share_a_variable() {
        let mut all: Vec<String> = SECTIONS
            .iter()
            .flat_map(|(section, keys)| keys.iter().map(move |key| variable(section, key)))
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_slip_is_refused_with_what_was_meant() {
        let error = unknown("GABION_GOSIP_BIND").unwrap_err();
        assert_eq!(error.suggestion.as_deref(), Some("GABION_GOSSIP_BIND"));
        assert!(error.to_string().contains("GABION_GOSIP_BIND"), "{error}");
    }

    #[test]
    fn service_links_of_kubernetes_are_no_settings() {
        for name in [
            "GABION_SERVICE_HOST",
            "GABION_SERVICE_PORT",
            "GABION_SERVICE_PORT_GRPC",
            "GABION_PORT",
            "GABION_PORT_8081_TCP",
            "GABION_PORT_8081_TCP_ADDR",
            "GABION_GOSSIP_SERVICE_HOST",
        ] {
            assert!(is_service_link(name, "tcp://10.0.0.1:8081"), "{name}");
        }
        assert!(!is_service_link("GABION_ENVOY_BINDD", "127.0.0.1:1"));
        assert!(!is_service_link("GABION_ADMIN_PORT", "9090"));
    }
}
