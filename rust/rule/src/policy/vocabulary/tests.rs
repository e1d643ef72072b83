//! Every load error of these keys: where it points, which key it names, what it advises.

use crate::policy::parse_limits;

/// What the settings of most cases begin with.
const REQUEST: &str = "match: request, descriptors: [{key: k}], rate: 1r/s";
const WHOLE: &str = "descriptors: [{key: k}], rate: 1r/s";

/// How the settings begin, how they go on, and every error without the file's name and `limits`.
type Case = (&'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip] // a row for each case
const CASES: &[Case] = &[
    (
        REQUEST, ", only_if: x",
        &[
            "4:66: only_if: a single value stands here; a list is expected",
        ],
    ),
    (
        REQUEST, ", only_if: [x]",
        &[
            "4:67: only_if[0]: a single value stands here; a mapping of attributes to \
             patterns is expected, like {path: \"/api/*\"}",
        ],
    ),
    (
        REQUEST, ", only_if: [{}]",
        &[
            "4:67: only_if[0]: an empty mapping stands here; a mapping of attributes to \
             patterns is expected, like {path: \"/api/*\"}",
        ],
    ),
    (
        REQUEST, ", only_if: [{path: }]",
        &[
            "4:72: only_if[0].path: a pattern is expected; write \"\" for an absent \
             attribute, \"*\" for any that is there",
        ],
    ),
    (
        REQUEST, ", only_if: [{path: []}]",
        &[
            "4:74: only_if[0].path: the list is empty; it would never match",
        ],
    ),
    (
        REQUEST, ", only_if: [{path: [a, {b: c}]}]",
        &[
            "4:78: only_if[0].path[1]: a mapping stands here; a pattern is expected",
        ],
    ),
    (
        REQUEST, ", except_if: [{ip: {nets: [10.0.0.0/8]}}]",
        &[
            "4:74: except_if[0].ip.networks: this key is required; patterns stand without \
             a mapping",
            "4:75: except_if[0].ip.nets: this key is not known; known are: networks",
        ],
    ),
    (
        REQUEST, ", except_if: [{ip: {networks: [10.0.0.1/8]}}]",
        &[
            "4:86: except_if[0].ip.networks[0]: networks=10.0.0.1/8: 10.0.0.1 is not the \
             first address of a network; its network is 10.0.0.0/8, its address 10.0.0.1; \
             write the one that is meant",
        ],
    ),
    (
        REQUEST, ", except_if: [{ip: {networks: [here]}}]",
        &[
            "4:86: except_if[0].ip.networks[0]: networks=here: it is no address; write an \
             address (192.0.2.1, 2001:db8::1), a network (10.0.0.0/8) or preset:NAME",
        ],
    ),
    (
        REQUEST, ", except_if: [{ip: {networks: [preset:cloudflar]}}]",
        &[
            "4:86: except_if[0].ip.networks[0]: preset:cloudflar is none of: \
             preset:private, preset:loopback, preset:link-local, preset:cloudflare; did \
             you mean preset:cloudflare?",
        ],
    ),
    (
        REQUEST, ", except_if: [{ip: {networks: []}}]",
        &[
            "4:85: except_if[0].ip.networks: the list is empty; it would never match",
        ],
    ),
    (
        REQUEST, ", ony_if: [{path: /a}]",
        &[
            "4:57: ony_if: this key is not known; did you mean only_if?",
        ],
    ),
    (
        WHOLE, ", only_if: [{k: a, kk: b}]",
        &[
            "4:58: only_if: only_if names kk, which this rule can never see: with match: \
             all its descriptor has the keys k and no other (did you mean k?); write \
             match: request to look at all attributes of a request",
        ],
    ),
    (
        WHOLE, ", except_if: [{path: b}]",
        &[
            "4:54: except_if: except_if names path, which this rule can never see: with \
             match: all its descriptor has the keys k and no other; write match: request \
             to look at all attributes of a request",
        ],
    ),
    (
        WHOLE, ", mode: unlimited, only_if: [{k: a}]",
        &[
            "4:47: mode: only_if and except_if and mode exclude each other: an unlimited \
             rule shields whole descriptors; write match: request, and replaces or last \
             to say what is spared",
        ],
    ),
    (
        REQUEST, ", if_flag: skp",
        &[
            "4:66: if_flag: flag skp is not declared; declare it under flags; did you \
             mean skip?",
        ],
    ),
    (
        REQUEST, ", if_flag: skip, unless_flag: skip",
        &[
            "4:85: unless_flag: if_flag and unless_flag exclude each other; keep one of \
             the two",
        ],
    ),
    (
        REQUEST, ", flag: skip",
        &[
            "4:63: flag: write if_flag, which applies the rule while the flag is on, or \
             unless_flag",
        ],
    ),
    (
        WHOLE, ", if_flag: byuser",
        &[
            "4:50: if_flag: if_flag names user, which this rule can never see: with \
             match: all its descriptor has the keys k and no other; write match: request \
             to look at all attributes of a request",
        ],
    ),
    (
        REQUEST, ", tiers: 5",
        &[
            "4:64: tiers: a single value stands here; a mapping of keys is expected",
        ],
    ),
    (
        REQUEST, ", tiers: {rates: {a: 1r/s}}",
        &[
            "4:64: tiers.by: this key is required",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan}",
        &[
            "4:64: tiers.rates: this key is required: a rate for each value",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {}}",
        &[
            "4:64: tiers: tiers is missing: by: the attribute, and rates: a rate for each \
             value",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: [a]}",
        &[
            "4:82: tiers.rates: a list stands here; a mapping of values to rates is \
             expected",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {a: [b]}}",
        &[
            "4:86: tiers.rates.a: a list stands here; a rate is expected",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {a: fast}}",
        &[
            "4:83: tiers: tiers=a: rate=fast: no / in it; write a rate like 100r/s, \
             0.5r/m, 10/h (units s m h d w mo y); write a rate that gives at least one \
             hit in the rule's window",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {a: 0r/s}}",
        &[
            "4:83: tiers: tiers=a: 0r/s admits nothing; write mode=disabled to switch the \
             rule off, mode=deny to deny all; write a rate that gives at least one hit in \
             the rule's window",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {a: 1r/m}}",
        &[
            "4:83: tiers: tiers=a: 1r/m over 1s is less than one hit; write window=1m or \
             longer; write a rate that gives at least one hit in the rule's window",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rates: {\"\": 1r/s}}",
        &[
            "4:64: tiers: tiers= is out of range: a tier's value has 1 to 1024 bytes",
        ],
    ),
    (
        REQUEST, ", burst: 5, tiers: {by: plan, rates: {a: 5r/s}}",
        &[
            "4:74: tiers: burst and tiers exclude each other: tiers are limits of a \
             window, and burst makes a token bucket; leave burst out, or write a rule for \
             each tier with only_if",
        ],
    ),
    (
        REQUEST, ", tiers: {by: plan, rate: {a: 1r/s}}",
        &[
            "4:64: tiers.rates: this key is required: a rate for each value",
            "4:75: tiers.rate: this key is not known; did you mean rates?",
        ],
    ),
    (
        WHOLE, ", tiers: {by: plan, rates: {a: 5r/s}}",
        &[
            "4:53: tiers: tiers names plan, which this rule can never see: with match: \
             all its descriptor has the keys k and no other; write match: request to look \
             at all attributes of a request",
        ],
    ),
    (
        REQUEST, ", last: maybe",
        &[
            "4:63: last: maybe is neither true nor false",
        ],
    ),
    (
        WHOLE, ", last: 7",
        &[
            "4:47: last: 7 is neither true nor false",
        ],
    ),
    (
        REQUEST, ", charge: late",
        &[
            "4:65: charge: a single value stands here; a mapping of keys is expected",
        ],
    ),
    (
        REQUEST, ", charge: {}",
        &[
            "4:65: charge.after: this key is required: request (the default) or response",
        ],
    ),
    (
        REQUEST, ", charge: {after: reply}",
        &[
            "4:73: charge.after: reply is none of: request, response",
        ],
    ),
    (
        REQUEST, ", charge: {after: response, status: [[1]]}",
        &[
            "4:92: charge.status[0]: a list stands here; a status like 401 or 5* is \
             expected",
        ],
    ),
    (
        REQUEST, ", charge: {after: request, status: [401]}",
        &[
            "4:73: charge.after: status and flags go with after: response; leave them \
             out, or charge later",
        ],
    ),
    (
        REQUEST, ", charge: {after: response, if_flag: skp}",
        &[
            "4:92: charge.if_flag: flag skp is not declared; declare it under flags; did \
             you mean skip?",
        ],
    ),
    (
        REQUEST, ", charge: {after: response, stauts: [401]}",
        &[
            "4:83: charge.stauts: this key is not known; did you mean status?",
        ],
    ),
    (
        WHOLE, ", charge: {after: response}",
        &[
            "4:49: charge: match and charge exclude each other: only match: request can \
             wait for the response; write it, or leave charge out",
        ],
    ),
    (
        REQUEST, ", replaces: [a]",
        &[
            "4:67: replaces: limiter and replaces exclude each other: a rule cannot \
             replace its own limiter; name the others",
        ],
    ),
    (
        REQUEST, ", replaces: [other]",
        &[
            "3:3: limits: rule a (p:3:3) replaces other, and no rule of its domain has \
             this limiter",
        ],
    ),
    (
        REQUEST, ", raw_headers: x",
        &[
            "4:70: raw_headers: a single value stands here; a mapping of headers is \
             expected",
        ],
    ),
    (
        REQUEST, ", raw_headers: {X-A: [b]}",
        &[
            "4:76: raw_headers.X-A: a list stands here; a value is expected",
        ],
    ),
    (
        REQUEST, ", raw_headers: {\"X A\": b}",
        &[
            "4:71: raw_headers.X A: raw_headers=X A: it is no name of a header; write a \
             name like X-Registry",
        ],
    ),
    (
        REQUEST, ", raw_headers: {X-A: \"b\\nc\"}",
        &[
            "4:71: raw_headers.X-A: raw_headers=b\\nc: it is not 1 to 1024 visible ASCII \
             characters; write a value on one line, without spaces around it",
        ],
    ),
    (
        REQUEST, ", raw_headers: {Content-Length: 5}",
        &[
            "4:71: raw_headers.Content-Length: raw_headers=Content-Length: this header is \
             not a rule's to set; write another header; a body has raw_body_type",
        ],
    ),
    (
        REQUEST, ", log: {fields: [a, b, c, d, e]}",
        &[
            "4:62: log: log=5 fields is out of range: a rule shows at most 4",
        ],
    ),
    (
        REQUEST, ", log: {fields: [\"a b\"]}",
        &[
            "4:72: log: log=a b: a field has a name of 1 to 32 letters, digits, _, - and \
             .; write a derived attribute with such a name",
        ],
    ),
    (
        REQUEST, ", log: {message: \"\"}",
        &[
            "4:72: log: log=: a message has 1 to 64 bytes and no control characters; \
             write a message like \"rate limit exceeded\"",
        ],
    ),
    (
        WHOLE, ", log: {fields: [path]}",
        &[
            "4:56: log: log names path, which this rule can never see: with match: all \
             its descriptor has the keys k and no other; write match: request to look at \
             all attributes of a request",
        ],
    ),
    (
        REQUEST, ", log: {fields: [rule]}",
        &[
            "4:72: log: log=rule: the line has a field of this name already; write \
             another attribute, or a derived one of another name",
        ],
    ),
    (
        "", "match: request, rate: 1r/s, descriptors: [{key: k, known: [a]}]",
        &[
            "4:62: descriptors[0].known: it does nothing without fallback; add one or \
             leave it out",
        ],
    ),
    (
        "", "match: request, rate: 1r/s, descriptors: [{key: k, value: a, fallback: b}]",
        &[
            "4:52: descriptors: descriptors=k: value and fallback exclude each other; \
             write the good values in known instead of value",
        ],
    ),
    (
        "", "match: request, rate: 1r/s, descriptors: [{key: k, fallback: \"\"}]",
        &[
            "4:45: descriptors: descriptors=k is out of range: fallback and known values \
             have 1 to 1024 bytes",
        ],
    ),
    (
        "", "match: request, rate: 1r/s, descriptors: [{key: k}, {key: k}]",
        &[
            "4:52: descriptors: descriptors=k: the key stands here twice; write each \
             attribute once",
        ],
    ),
    (
        "", "match: request, rate: 1r/s, descriptors: [{key: k, value: \"\"}]",
        &[
            "4:52: descriptors: descriptors=k: an empty value is an absent attribute, so \
             this rule would never apply; write only_if with this key and \"\", or a \
             fallback",
        ],
    ),
    (
        "", "rate: 1r/s, descriptors: [{key: k, fallback: b}]",
        &[
            "4:36: descriptors: descriptors=k: its fallback stands for a key that is \
             absent, and only match: request looks at descriptors that lack one; write \
             match: request, or leave fallback out",
        ],
    ),
    (
        "", "rate: 1r/s, descriptors: []",
        &[
            "4:29: descriptors: descriptors is missing: at least one key to count by",
        ],
    ),
    (
        "", "match: requests, rate: 1r/s, descriptors: [{key: k}]",
        &[
            "4:11: match: requests is none of: all, path, request; did you mean request?",
        ],
    ),
];

#[test]
fn every_error_has_its_place_its_key_and_advice() {
    for (begin, rest, expected) in CASES {
        // The settings stand on a line of their own, from column 4.
        let text = format!(
            "flags: {{skip: {{default: off}}, byuser: {{default: 5%, by: user}}}}\nlimits:\n\
             - {{name: a, domain: d,\n   {begin}{rest}}}\n"
        );
        let said: Vec<String> = match parse_limits("p", &text) {
            Ok(policy) => panic!("{begin}{rest} was accepted: {policy:?}"),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        let said: Vec<String> = said
            .iter()
            .map(|line| line.trim_start_matches("p:").replacen("limits[0].", "", 1))
            .collect();
        assert_eq!(said, *expected, "{begin}{rest}");
        assert!(said.iter().all(|line| !line.contains('\n')), "{said:?}");
    }
}

#[test]
fn a_rule_that_lacks_something_is_never_left_out_in_silence() {
    for hole in ["descriptors: []", "tiers: {by: k, rates: {}}", "rate: ''"] {
        let mut settings = vec!["descriptors: [{key: k}]", "rate: 1r/s"];
        let key = hole.split(':').next();
        settings.retain(|one| one.split(':').next() != key);
        settings.push(hole);
        let rule = format!(
            "limits:\n- {{name: a, domain: d, {}}}\n",
            settings.join(", ")
        );
        assert!(parse_limits("p", &rule).is_err(), "{rule}");
    }
}
