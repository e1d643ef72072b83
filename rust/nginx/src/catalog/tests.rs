//! Tests of the catalog.
use super::*;
use gabion_rule::Place;

fn catalog(lines: &[&str]) -> Result<Catalog, ConfError> {
    let mut settings = Settings::default();
    for (at, line) in (1u32..).zip(lines) {
        let words: Vec<&str> = line.split(' ').collect();
        settings.apply(words[0], &words[1..], Place::new("nginx.conf", at, 0))?;
    }
    settings.finish()?;
    Catalog::build(&settings, None)
}

const ZONE: &str = "gabion_limit_zone zone=z:1m";

#[test]
fn case_52_the_order_of_rules_does_not_change_a_zone() {
    let (a, b) = (
        "gabion_limit_rule a $a rate=5r/s",
        "gabion_limit_rule b $b rate=6r/m",
    );
    let (one, two) = (
        catalog(&[ZONE, a, b]).unwrap(),
        catalog(&[ZONE, b, a]).unwrap(),
    );
    assert_eq!(one.zones[0].memory_name, two.zones[0].memory_name);
    assert_eq!(one.zones[0].subs, two.zones[0].subs);
    assert_eq!(one.rules[0].index, two.rules[1].index);
}

#[test]
fn case_55_a_changed_limit_keeps_the_zone_and_a_changed_window_does_not() {
    let of = |rule: &str| {
        let line = format!("gabion_limit_rule a $a {rule}");
        catalog(&[ZONE, &line]).unwrap().zones[0]
            .memory_name
            .clone()
    };
    let before = of("rate=10r/m");
    assert_eq!(before, of("rate=20r/m"));
    assert_eq!(before, of("rate=20r/m mode=dry_run"));
    assert_ne!(before, of("rate=10r/m window=2m"));
    assert_ne!(before, of("rate=10r/m cardinality=100"));
    assert_ne!(before, of("rate=20000000r/m"));
    assert_ne!(of("rate=10r/m burst=5"), of("rate=20r/m burst=5"));
}

#[test]
fn the_secret_of_the_keys_is_part_of_the_name() {
    let mut settings = Settings::default();
    for line in [ZONE, "gabion_limit_rule a $a rate=1r/s"] {
        let words: Vec<&str> = line.split(' ').collect();
        settings
            .apply(words[0], &words[1..], Place::new("f", 1, 0))
            .unwrap();
    }
    let name = |hasher: Option<&KeyHasher>| {
        Catalog::build(&settings, hasher).unwrap().zones[0]
            .memory_name
            .clone()
    };
    let (a, b) = (KeyHasher::new([1; 16]), KeyHasher::new([2; 16]));
    assert_ne!(name(None), name(Some(&a)));
    assert_ne!(name(Some(&b)), name(Some(&a)));
    assert_eq!(name(Some(&a)), name(Some(&a)));
}

#[test]
fn rules_go_to_the_zone_they_name_or_the_first() {
    let catalog = catalog(&[
        ZONE,
        "gabion_limit_zone zone=y:2m",
        "gabion_limit_rule a $a rate=5r/s",
        "gabion_limit_rule b $b rate=5r/s zone=y",
        "gabion_limit_rule c $c rate=5r/s zone=y",
    ])
    .unwrap();
    assert_eq!(
        catalog.rules.iter().map(|r| r.zone).collect::<Vec<_>>(),
        [0, 1, 1]
    );
    assert_eq!(catalog.zones[1].rules.len(), 2);
    assert_eq!(catalog.find("b"), Ok(1));
    let error = catalog.find("bb").unwrap_err().to_string();
    assert!(error.contains("there is no such rule"), "{error}");
}

#[test]
fn rules_that_cannot_be_are_refused_with_what_to_write() {
    let rule = "gabion_limit_rule a $a rate=5r/s";
    for (lines, says) in [
        (vec![ZONE, rule, rule], "a"),
        (
            vec![ZONE, rule, "gabion_limit_rule b $a rate=6r/s limiter=a"],
            "same domain, limiter",
        ),
        (
            vec![ZONE, "gabion_limit_rule a rate=5r/s"],
            "not what to count by",
        ),
        (vec![ZONE, "gabion_limit_rule a $a"], "rate is missing"),
        (
            vec![ZONE, "gabion_limit_rule a $a rate=0r/s"],
            "mode=disabled",
        ),
        (
            vec![ZONE, "gabion_limit_rule a $a rate=1r/m window=1s"],
            "less than one hit",
        ),
        (
            vec![ZONE, "gabion_limit_rule a $a rate=1r/s zone=zz"],
            "did you mean z?",
        ),
        (
            vec![ZONE, "gabion_limit_rule a $a rate=1r/s burst=2 window=1m"],
            "exclude each other",
        ),
        (
            vec![ZONE, rule, "gabion_limit_rule a $b rate=5r/s domain=d"],
            "two domains",
        ),
    ] {
        let error = catalog(&lines).unwrap_err().to_string();
        assert!(error.contains(says), "{lines:?}: {error}");
        assert!(error.starts_with("\"gabion_limit_rule\""), "{error}");
    }
}

#[test]
fn case_52_rules_of_the_file_are_bound_by_name_or_by_directive() {
    let yaml = "limits:\n\
        - {name: ip, domain: edge, descriptors: [{key: remote_addr}], rate: 5r/s}\n\
        - {name: tier, domain: edge, descriptors: [{key: tier, value: free}, {key: user-id}], \
           rate: 6r/m}\n";
    let mut settings = Settings::default();
    settings.zones.push(crate::settings::ZoneWords {
        name: "z".into(),
        bytes: 1 << 20,
    });
    settings.file_rules = gabion_rule::policy::parse_limits("limits.yaml", yaml)
        .unwrap()
        .rules;
    let unbound = Catalog::build(&settings, None).unwrap_err().to_string();
    assert!(
        unbound.contains("gabion_limit_rule tier user-id:$var"),
        "{unbound}"
    );
    let line = ["tier", "user-id:$http_user", "except_if=$x"];
    settings
        .apply("gabion_limit_rule", &line, Place::new("f", 1, 0))
        .unwrap();
    let catalog = Catalog::build(&settings, None).unwrap();
    let tier = &catalog.rules[catalog.find("tier").unwrap()];
    assert_eq!(tier.bindings[0].template, "${tier}");
    assert_eq!(tier.bindings[1].template, "$http_user");
    assert_eq!(tier.except_if.as_deref(), Some("$x"));
    assert_eq!(tier.identity, settings.file_rules[1].identity());
    let ip = &catalog.rules[catalog.find("ip").unwrap()];
    assert_eq!(ip.bindings[0].template, "${remote_addr}");
}

#[test]
fn a_rule_names_a_declared_flag_whose_default_it_has() {
    let rule = "gabion_limit_rule a $a rate=5r/s if_flag=canary";
    let flag = "gabion_flag canary default=off";
    let with = catalog(&[ZONE, rule, flag]).unwrap();
    let found = with.rules[0].rule.switch.clone().unwrap().flag;
    assert_eq!((found.name.as_str(), found.default.get()), ("canary", 0));
    assert_eq!(with.zones[0].order_names, [Names::of(&with.rules[0].rule)]);
    // A flag more or less keeps the memory, and so the counts.
    let without = catalog(&[ZONE, "gabion_limit_rule a $a rate=5r/s"]).unwrap();
    assert_eq!(with.zones[0].memory_name, without.zones[0].memory_name);
    let error = catalog(&[ZONE, rule, "gabion_flag canry"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("if_flag=canary"), "{error}");
    assert!(
        error.ends_with("declare it with gabion_flag; did you mean canry?"),
        "{error}"
    );
    // A rule of the file takes the flag of its directive.
    let mut settings = Settings::default();
    for line in [
        ZONE,
        "gabion_flag f default=25%",
        "gabion_limit_rule tier k:$arg_k unless_flag=f",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let place = Place::new("nginx.conf", 1, 0);
        settings.apply(words[0], &words[1..], place).unwrap();
    }
    let yaml = "limits: [{name: tier, domain: d, descriptors: [{key: k}], rate: 1r/s}]";
    let read = gabion_rule::policy::parse_limits("limits.yaml", yaml).unwrap();
    settings.file_rules = read.rules;
    let built = Catalog::build(&settings, None).unwrap();
    let switch = built.rules[0].rule.switch.as_ref().unwrap();
    assert_eq!((switch.flag.default.get(), switch.on), (25, false));
}

#[test]
fn counters_of_a_rule_with_tiers_are_open_and_each_charge_brings_its_limit() {
    let mut settings = Settings::default();
    let line = ["zone=z:1m"];
    settings
        .apply("gabion_limit_zone", &line, Place::new("f", 1, 0))
        .unwrap();
    let yaml = "limits: [{name: t, domain: d, match: request, descriptors: [{key: k}], \
                rate: 9r/m, tiers: {by: plan, rates: {a: 5r/m, b: 20000000r/m}}}, \
                {name: u, domain: d, match: request, descriptors: [{key: k}], mode: unlimited}]";
    let read = gabion_rule::policy::parse_limits("limits.yaml", yaml).unwrap();
    settings.file_rules = read.rules;
    let catalog = Catalog::build(&settings, None).unwrap();
    let (tiers, free) = (&catalog.rules[0], &catalog.rules[1]);
    assert_eq!((tiers.tiered_limit, free.tiered_limit), (Some(9), None));
    let (zone, at) = (&catalog.zones[0], usize::from(tiers.index));
    assert_eq!(zone.subs[at].plan.limit(), u32::MAX);
    assert_eq!(
        (zone.pump[at].plan.limit(), zone.limiters[at].limit),
        (5, 5)
    );
    assert_eq!(zone.subs[usize::from(free.index)].cardinality, Some(1));
}
