//! What answers carry beside the verdict: headers for the client, metadata for Envoy.

use gabion_admit::headers::Families;
use gabion_rule::policy::yaml::nearest;
use gabion_rule::policy::MapReader;

/// Which answers carry something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// Those that deny.
    #[default]
    Denied,
    /// All that name a limit.
    Always,
    /// None.
    Off,
}

impl When {
    const WORDS: [&'static str; 3] = ["denied", "always", "off"];

    fn of(word: &str) -> Option<When> {
        match word {
            "denied" => Some(When::Denied),
            "always" => Some(When::Always),
            "off" => Some(When::Off),
            _ => None,
        }
    }

    /// Whether an answer carries it.
    pub fn holds(self, denied: bool) -> bool {
        match self {
            When::Denied => denied,
            When::Always => true,
            When::Off => false,
        }
    }
}

/// What answers carry beside the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Which answers carry headers.
    pub headers: When,
    /// Which headers.
    pub families: Families,
    /// Which answers carry `dynamic_metadata`.
    pub metadata: When,
    /// Whether these have the fields of the Envoy project's reference service, too.
    pub reference_fields: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            headers: When::default(),
            families: FAMILIES,
            metadata: When::default(),
            reference_fields: false,
        }
    }
}

/// The word for fields as the Envoy project's reference service names them.
const REFERENCE: &str = "reference";

/// What is sent when no family is named.
const FAMILIES: Families = Families {
    x: true,
    retry_after: true,
    ..Families::NONE
};

pub(super) fn answers(map: &mut MapReader<'_, '_>) -> Answers {
    let mut answers = Answers::default();
    let words = map.texts("response_headers").unwrap_or_default();
    let (mut when, mut families) = (None, None);
    for word in words {
        let before = (when, families);
        if let Some(said) = When::of(word) {
            when = Some(said);
            if before.0.is_some() {
                let message = "denied, always and off exclude each other; keep one";
                map.problem("response_headers", message);
            }
        } else if word == "all" {
            families = Some(Families::ALL);
        } else if !families.get_or_insert(Families::NONE).add(word) {
            let words: [&[&str]; 3] = [&When::WORDS, &Families::WORDS, &["all"]];
            unknown(map, "response_headers", word, &words);
        }
    }
    if when == Some(When::Off) && families.is_some() {
        let message = "off sends none; leave the families out, or write denied or always";
        map.problem("response_headers", message);
    }
    answers.headers = when.unwrap_or_default();
    answers.families = families.unwrap_or(FAMILIES);
    metadata(map, &mut answers);
    answers
}

fn metadata(map: &mut MapReader<'_, '_>, answers: &mut Answers) {
    const KEY: &str = "dynamic_metadata";
    let mut when = None;
    for word in map.texts(KEY).unwrap_or_default() {
        match When::of(word) {
            Some(_) if when.is_some() => {
                map.problem(KEY, "denied, always and off exclude each other; keep one");
            }
            Some(said) => when = Some(said),
            None if word == REFERENCE => answers.reference_fields = true,
            None => unknown(map, KEY, word, &[&When::WORDS, &[REFERENCE]]),
        }
    }
    if when == Some(When::Off) && answers.reference_fields {
        map.problem(
            KEY,
            "off sends none; leave reference out, or write denied or always",
        );
    }
    answers.metadata = when.unwrap_or_default();
}

fn unknown(map: &MapReader<'_, '_>, key: &'static str, word: &str, known: &[&[&'static str]]) {
    let words: Vec<&str> = known.concat();
    let near = nearest(word, words.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    map.problem(
        key,
        format!("{word} is none of: {}{near}", words.join(", ")),
    );
}
