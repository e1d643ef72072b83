//! How a world is written as JSON where its own types do not say it.
//!
//! I own the names of those places. I promise: whatever is written is read back the same, unknown
//! names are refused, and bounds of nodes and pumps are written only where they are not the usual
//! ones. I never: check whether a world makes sense; that is [`crate::scenario`].

use gabion_rule::{Algorithm, Pace, Sliding};
use serde::{Deserialize, Serialize};

/// [`Algorithm`] as JSON.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Algorithm", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AlgorithmForm {
    Window {
        limit: u32,
        window_ns: u64,
        bucket_ns: u64,
        #[serde(with = "SlidingForm")]
        sliding: Sliding,
    },
    TokenBucket {
        hits: u64,
        per_ns: u64,
        burst: u32,
        epoch_ns: u64,
    },
}

/// [`Sliding`] as JSON.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Sliding", rename_all = "snake_case")]
pub(crate) enum SlidingForm {
    Live,
    Strict,
    Weighted,
}

/// [`Pace`] as JSON; places follow from the numbers of members.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Pace", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum PaceForm {
    Fast,
    Paced,
    Strict {
        members: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<u32>,
    },
}

/// A bit per member, as the list of members.
pub(crate) mod side {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(side: &u64, to: S) -> Result<S::Ok, S::Error> {
        let members: Vec<u32> = (0..64).filter(|bit| side >> bit & 1 == 1).collect();
        members.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let mut side = 0u64;
        for member in Vec::<u32>::deserialize(from)? {
            let bit = 1u64.checked_shl(member);
            side |= bit.ok_or_else(|| D::Error::custom("a side names members 0 to 63"))?;
        }
        Ok(side)
    }
}

/// Things that happen at a true time: `{"at_ns": 5, "do": ..}`.
pub(crate) mod timed {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct At<T> {
        at_ns: u64,
        #[serde(rename = "do")]
        what: T,
    }

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        list: &[(u64, T)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|(at_ns, what)| At {
            at_ns: *at_ns,
            what,
        }))
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(u64, T)>, D::Error> {
        let list = Vec::<At<T>>::deserialize(from)?;
        Ok(list.into_iter().map(|at| (at.at_ns, at.what)).collect())
    }
}

/// How own rows reach the others: "auto", "mesh" or a number.
pub(crate) mod fanout {
    use gabion_node::Fanout;
    use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        held: &Option<Fanout>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = held.map(|fanout| match fanout {
            Fanout::Auto => "auto".to_owned(),
            Fanout::Mesh => "mesh".to_owned(),
            Fanout::Members(n) => n.to_string(),
        });
        text.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Fanout>, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Some(Fanout::Auto)),
            "mesh" => Ok(Some(Fanout::Mesh)),
            n => n
                .parse()
                .map(|n| Some(Fanout::Members(n)))
                .map_err(D::Error::custom),
        }
    }
}

macro_rules! tunables {
    ($(#[$doc:meta])* $module:ident: $type:ty, $usual:expr, {
        $($(#[$how:meta])* $field:ident: $kind:ty,)*
    }) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            #[derive(Default, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            struct Form {
                $(
                    #[serde(skip_serializing_if = "Option::is_none")]
                    $(#[$how])*
                    $field: Option<$kind>,
                )*
            }

            fn form(held: &$type) -> Form {
                let usual: $type = $usual;
                Form { $($field: (held.$field != usual.$field).then_some(held.$field),)* }
            }

            pub(crate) fn is_usual(held: &$type) -> bool {
                let form = form(held);
                true $(&& form.$field.is_none())*
            }

            pub(crate) fn serialize<S: Serializer>(held: &$type, to: S) -> Result<S::Ok, S::Error> {
                form(held).serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<$type, D::Error> {
                let form = Form::deserialize(from)?;
                let mut held: $type = $usual;
                $(if let Some(value) = form.$field { held.$field = value; })*
                Ok(held)
            }

            #[cfg(test)]
            pub(crate) const FIELDS: &[&str] = &[$(stringify!($field)),*];
        }
    };
}

tunables! {
    /// Bounds and timings of nodes that are not those of [`crate::config::WorldConfig::calm`].
    node: gabion_node::Tunables, crate::config::small_node(), {
        #[serde(with = "super::fanout")]
        fanout: gabion_node::Fanout,
        min_emit_interval_ns: u64,
        packets_per_second: u64,
        heartbeat_ns: u64,
        idle_heartbeat_ns: u64,
        ack_delay_ns: u64,
        hello_min_ns: u64,
        hello_max_ns: u64,
        peer_timeout_ns: u64,
        rto_min_ns: u64,
        rto_max_ns: u64,
        max_cells: u32,
        max_chunks: u32,
        origin_share_ppm: u32,
        max_origins: u16,
        max_shelves: u32,
        dirty_log_entries: u32,
        cold_queue_rows: usize,
        urgent_rows: usize,
        repair_rows_per_second: u64,
        active_repairs: usize,
        repair_backoff_ns: u64,
        max_skew_ns: u64,
        clock_step_ns: u64,
        clock_slew_ppm: u64,
        accept_unknown_sources: bool,
        max_provisional_links: usize,
        unproven_replies_per_second: u64,
    }
}

tunables! {
    /// Bounds and timings of pumps that are not those of production.
    pump: gabion_pump::Tunables, gabion_pump::Tunables::default(), {
        dirty_rows_per_turn: usize,
        effects_per_turn: usize,
        scrub_rows_per_turn: usize,
        scrub_period_ns: u64,
        pause_busy_ns: u64,
        pause_idle_max_ns: u64,
        bases_max: usize,
        early_max: usize,
    }
}

#[cfg(test)]
mod tests {
    /// Names of the fields in the `Debug` text of a flat struct.
    fn fields(text: &str) -> Vec<String> {
        let (_, body) = text.split_once('{').unwrap();
        let names = body.split(", ").filter_map(|part| part.split_once(": "));
        names.map(|(name, _)| name.trim().to_owned()).collect()
    }

    #[test]
    fn every_tunable_has_a_name_in_the_form() {
        let node = format!("{:?}", gabion_node::Tunables::default());
        assert_eq!(fields(&node), super::node::FIELDS, "add it to forms.rs");
        let pump = format!("{:?}", gabion_pump::Tunables::default());
        assert_eq!(fields(&pump), super::pump::FIELDS, "add it to forms.rs");
    }
}
