//! Files that are refused, and with which words.

use super::*;

fn errors_of(files: &[SourceFile], options: Options) -> Vec<String> {
    match read(files, options) {
        Ok(policy) => panic!("accepted: {policy:#?}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn errors(text: &str) -> Vec<String> {
    errors_of(&[file("c.yaml", text)], Options::default())
}

fn error(text: &str) -> String {
    let mut all = errors(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// A file with one descriptor, whose further lines are given.
fn with(lines: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n{lines}\n")
}

#[test]
fn case_01_a_misspelt_key_is_refused_with_place_and_suggestion() {
    assert_eq!(
        error(&with(
            "  rate_limit: {unlimied: true, unit: day, requests_per_unit: 1}"
        )),
        "c.yaml:4:16: descriptors[0].rate_limit.unlimied: this key is not known; did you mean \
         unlimited?"
    );
    assert_eq!(
        error(&with("  ratelimit: {unit: day, requests_per_unit: 1}")),
        "c.yaml:4:3: descriptors[0].ratelimit: this key is not known; did you mean rate_limit?"
    );
    assert!(error("domain: d\ndescriptor: []\n").ends_with("did you mean descriptors?"));
    let unit = error(&with("  rate_limit: {unit: days, requests_per_unit: 1}"));
    assert!(
        unit.starts_with("c.yaml:4:22: ") && unit.ends_with("did you mean day?"),
        "{unit}"
    );
}

#[test]
fn a_key_that_stands_in_the_wrong_place_is_refused() {
    let limit = "  rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}";
    let said = error(&with(limit));
    assert!(
        said.contains("shadow_mode: this key has no meaning here"),
        "{said}"
    );
    let said = error(&with("  unlimited: true"));
    assert!(said.contains("it belongs in rate_limit"), "{said}");
}

#[test]
fn case_03_a_composite_key_twice_is_refused_naming_both_places() {
    let twice = "
domain: d
descriptors:
- key: a
  descriptors:
  - {key: b, value: c}
  - {key: other}
  - {key: b, value: c}
";
    assert_eq!(
        error(twice),
        "c.yaml:8:5: descriptors[0].descriptors[2]: composite key d.a.b_c is already given at \
         c.yaml:6:5; remove one of the two"
    );
    let spelt_alike = "domain: d\ndescriptors: [{key: a, value: b_c}, {key: a_b, value: c}]\n";
    assert!(error(spelt_alike).contains("composite key d.a_b_c is already given at c.yaml:2:15"));
}

#[test]
fn case_03_a_domain_in_two_files_is_refused_or_merged() {
    let one = file("one.yaml", "domain: d\ndescriptors: [{key: a}, {key: b}]\n");
    let two = file(
        "two.yaml",
        "# more\ndomain: d\ndescriptors: [{key: b}, {key: c}]\n",
    );
    let files = [one, two];
    let said = errors_of(&files, Options::default());
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].starts_with("two.yaml:2:9: domain: domain d is already given at one.yaml:1:9"),
        "{said:?}"
    );
    let merge = Options {
        merge_domains: true,
        ..Options::default()
    };
    let said = errors_of(&files, merge);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].starts_with("two.yaml:3:15: ") && said[0].contains("given at one.yaml:2:25"),
        "{said:?}"
    );
    let three = file("three.yaml", "domain: d\ndescriptors: [{key: c}]\n");
    let merged = read(&[files[0].clone(), three], merge).unwrap();
    assert_eq!(merged.rules.len(), 3);
}

#[test]
fn case_06_files_that_are_none_give_clear_errors() {
    assert_eq!(
        error(""),
        "c.yaml:1:1: the file is empty; a mapping is expected"
    );
    assert_eq!(
        error("# only a comment\n"),
        "c.yaml:1:1: the file is empty; a mapping is expected"
    );
    assert!(error("- domain: d\n").contains("a list stands here"));
    assert!(error("domain: {a: b}\n").contains("a single value is expected"));
    let latin = SourceFile {
        name: "latin.yaml".to_owned(),
        bytes: b"domain: d\n# \xE9\n".to_vec(),
    };
    let said = errors_of(&[latin], Options::default());
    assert_eq!(
        said,
        ["latin.yaml:2:3: the file is not UTF-8 text; save it as UTF-8"]
    );
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (from, to) in ('a'..='i').zip('b'..='j') {
        let items = vec![format!("*{from}"); 10].join(",");
        bomb += &format!("{to}: &{to} [{items}]\n");
    }
    assert!(error(&bomb).contains("aliases expand to more than"));
}

#[test]
fn what_the_service_refuses_is_refused_here() {
    refused(vec![
        (
            "descriptors: []\n".to_owned(),
            "domain: this key is required",
        ),
        ("domain: ''\n".to_owned(), "domain: it is empty"),
        (
            "domain: d\ndescriptors: [{value: v}]\n".to_owned(),
            "key: this key is required",
        ),
        (
            "domain: d\ndescriptors: [{key: ''}]\n".to_owned(),
            "key: it is empty",
        ),
        (
            "domain: d\ndescriptors: [text]\n".to_owned(),
            "a mapping of keys is expected",
        ),
        (
            with("  rate_limit: {requests_per_unit: 1}"),
            "unit: this key is required",
        ),
        (
            with("  rate_limit: {unit: day}"),
            "requests_per_unit: this key is required",
        ),
        (
            with("  rate_limit: {unit: unknown, requests_per_unit: 1}"),
            "is none of",
        ),
        (
            with("  rate_limit: {unit: day, requests_per_unit: -1}"),
            "not a whole number",
        ),
        (
            with("  rate_limit: {unit: day, requests_per_unit: 4294967296}"),
            "is outside",
        ),
    ]);
}

#[test]
fn what_contradicts_itself_is_refused() {
    refused(vec![
        (
            with("  rate_limit: {unlimited: true, unit: day}"),
            "has no unit",
        ),
        (
            with("  rate_limit: {unlimited: perhaps}"),
            "neither true nor false",
        ),
        (with("  rate_limit:"), "this block is empty"),
        (
            with("  share_threshold: true"),
            "only the values of a wildcard",
        ),
        (
            with("  value: v\n  share_threshold: true"),
            "only the values of a wildcard",
        ),
        (
            with("  rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: ''}]}"),
            "name: it is empty",
        ),
        (
            with("  rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]}"),
            "cannot replace itself",
        ),
        (
            "domain: d\ndescriptors: [{key: 'k*'}]\n".to_owned(),
            "only values do",
        ),
        ("domain: d\ndomain: e\n".to_owned(), "already given"),
    ]);
}

/// Each text is refused with words that contain its part.
fn refused(texts: Vec<(String, &str)>) {
    for (text, part) in texts {
        let said = errors(&text).join("\n");
        assert!(said.contains(part), "{text}\n{said}");
        assert!(said.starts_with("c.yaml:"), "{said}");
    }
}

#[test]
fn all_faults_of_all_files_are_reported_at_once() {
    let wrong = "domain: d\ndescriptors: [{ky: a}, {key: a, rate_limit: {unit: fortnight}}]\n";
    let files = [
        file("a.yaml", wrong),
        file("b.yaml", ""),
        file("c.yaml", "domain: x\n"),
    ];
    let said = errors_of(&files, Options::default());
    assert_eq!(said.len(), 5, "{said:#?}");
    assert!(said[4].starts_with("b.yaml:1:1"), "{said:#?}");
    let doubles = "{key: k},".repeat(200);
    let many = format!("domain: d\ndescriptors: [{doubles}]\n");
    let said = errors(&many);
    assert_eq!(said.len(), crate::limits::MAX_REPORTED_ERRORS + 1);
    assert!(said[64].ends_with("135 more errors after this one are not shown"));
}

#[test]
fn what_says_nothing_is_named() {
    let policy = load(
        "
domain: d
descriptors:
- {key: a, shadow_mode: true}
- {key: b, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: c, rate_limit: {unlimited: true, requests_per_unit: 3}}
- {key: e, rate_limit: {unit: day, requests_per_unit: 3, replaces: [{name: gone}]}}
",
    );
    let said = notices(&policy).join("\n");
    for part in [
        "c.yaml:4:3: rule a: shadow_mode and quota_mode say nothing without a limit",
        "c.yaml:5:3: rule b: 0 requests that only watch deny nothing",
        "c.yaml:6:24: rule c: unlimited: requests_per_unit says nothing beside it",
        "c.yaml:7:3: rule e: it replaces gone, and no limit of the domain has this name",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(policy.rules.iter().all(|rule| rule.replaces.is_empty()));
}
