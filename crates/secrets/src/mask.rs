//! Replaces secret values by `***` in captured output and in the report.
//!
//! All values are searched at once with the Aho-Corasick automaton (1975): the time is linear in the
//! text, even if values or text are repetitive.

use crate::covered::Covered;
use spec::document::escape_pointer_step;
use spec::egress_report::EgressReport;
use spec::path::escape;
use spec::report::{Denial, Plan, Report};
use spec::secret::Secret;
use sys::allocator::keep_from_children;

pub(crate) const MASK: &str = "***";
/// Where a message shortens a text.
const ELLIPSIS: &str = "…";
/// Shorter values are not searched: they occur in nearly every text.
pub const VALUE_BYTES_MIN: usize = 4;
/// Shorter lines of a multi-line value are not searched separately.
const LINE_BYTES_MIN: usize = 8;

/// The secret values that are replaced in output and reports.
#[derive(Debug, Default)]
pub struct Masks {
    values: Vec<Secret>,
}

impl Masks {
    /// Adds a value. Returns `false` if it is too short to be masked.
    pub fn add(&mut self, value: &[u8]) -> bool {
        if value.len() < VALUE_BYTES_MIN {
            return false;
        }
        self.values
            .push(keep_from_children(|| Secret::new(value.to_vec())));
        true
    }

    /// Replaces each secret value in `text`.
    pub fn mask_text(&self, text: &mut String) {
        Finder::new(&self.patterns()).mask_text(text);
    }

    /// Masks all texts in the report that may repeat a value.
    pub fn mask_report(&self, report: &mut Report) {
        if self.values.is_empty() {
            return;
        }
        let patterns = self.patterns();
        Finder::new(&patterns).mask_report(report);
        // Host names are stored in lower case.
        let lowered: Vec<Secret> = patterns
            .iter()
            .map(|pattern| Secret::new(pattern.bytes().to_ascii_lowercase()))
            .collect();
        Finder::new(&lowered).mask_names(report);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn finder(&self) -> Finder {
        Finder::new(&self.patterns())
    }

    fn patterns(&self) -> Vec<Secret> {
        let values = self.values.iter();
        values.flat_map(|value| patterns(value.bytes())).collect()
    }
}

/// The patterns of one value: the value without surrounding white space, its escaped forms in messages,
/// JSON and JSON pointers, and each line of at least [`LINE_BYTES_MIN`] of a multi-line value.
fn patterns(value: &[u8]) -> Vec<Secret> {
    let trimmed = value.trim_ascii();
    let base = if trimmed.len() < VALUE_BYTES_MIN {
        value
    } else {
        trimmed
    };
    let mut found = vec![base.to_vec()];
    if base.contains(&b'\n') {
        // A terminal may write CR and LF.
        let lines: Vec<&[u8]> = base
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .collect();
        found.push(lines.join(&b"\r\n"[..]));
        found.extend(
            lines
                .into_iter()
                .map(<[u8]>::trim_ascii)
                .filter(|line| line.len() >= LINE_BYTES_MIN)
                .map(<[u8]>::to_vec),
        );
    }
    for index in 0..found.len() {
        let escaped = escape(&found[index]);
        let text = std::str::from_utf8(&found[index]).ok();
        let quoted = text.map(quoted);
        let step = text.map(escape_pointer_step);
        // A message may quote JSON or contain a pointer, and is escaped itself.
        let both = |form: &Option<String>| form.as_ref().map(|text| escape(text.as_bytes()));
        let forms = [Some(escaped), both(&quoted), both(&step), quoted, step];
        for form in forms.into_iter().flatten() {
            if !found.iter().any(|known| known == form.as_bytes()) {
                found.push(form.into_bytes());
            }
        }
    }
    found.into_iter().map(Secret::new).collect()
}

/// Encodes `text` as a JSON string, without the quotation marks.
fn quoted(text: &str) -> String {
    let written = serde_json::Value::String(text.to_owned()).to_string();
    written
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(&written)
        .to_owned()
}

/// The start state, which matches no byte of a pattern.
const ROOT: usize = 0;

/// The automaton of all patterns.
pub(crate) struct Finder {
    nodes: Vec<Node>,
    /// The transitions of the root, by byte.
    first: Vec<usize>,
    /// Whether a replacement can create a match: only if a value contains the mask character.
    can_rematch: bool,
}

#[derive(Clone, Copy)]
struct Node {
    byte: u8,
    /// The first longer prefix, and the next sibling; [`ROOT`] for none.
    child: usize,
    sibling: usize,
    /// The longest proper suffix of this prefix that is also a prefix.
    fallback: usize,
    /// Length of this prefix, in bytes.
    depth: usize,
    /// Length of the longest pattern that ends here, in bytes; 0 for none.
    longest: usize,
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Finder")
    }
}

impl Drop for Finder {
    /// Erases the nodes, which contain the values.
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.byte = 0;
        }
        std::hint::black_box(&self.nodes);
    }
}

impl Finder {
    fn new(patterns: &[Secret]) -> Self {
        let root = Node {
            byte: 0,
            child: ROOT,
            sibling: ROOT,
            fallback: ROOT,
            depth: 0,
            longest: 0,
        };
        let total: usize = patterns.iter().map(|pattern| pattern.bytes().len()).sum();
        let mut finder = Self {
            // Allocated at full size: a growing vector leaves copies of the values in freed memory.
            nodes: Vec::with_capacity(total + 1),
            first: vec![ROOT; 256],
            can_rematch: patterns
                .iter()
                .any(|pattern| pattern.bytes().contains(&MASK.as_bytes()[0])),
        };
        finder.nodes.push(root);
        for pattern in patterns {
            finder.add(pattern.bytes());
        }
        finder.set_fallbacks();
        finder
    }

    fn add(&mut self, pattern: &[u8]) {
        let mut state = ROOT;
        for byte in pattern {
            state = match self.child(state, *byte) {
                ROOT => self.add_child(state, *byte),
                child => child,
            };
        }
        self.nodes[state].longest = pattern.len();
    }

    fn add_child(&mut self, state: usize, byte: u8) -> usize {
        let new = self.nodes.len();
        let parent = self.nodes[state];
        self.nodes.push(Node {
            byte,
            child: ROOT,
            sibling: parent.child,
            fallback: ROOT,
            depth: parent.depth + 1,
            longest: 0,
        });
        self.nodes[state].child = new;
        if state == ROOT {
            self.first[usize::from(byte)] = new;
        }
        new
    }

    fn child(&self, state: usize, byte: u8) -> usize {
        if state == ROOT {
            return self.first[usize::from(byte)];
        }
        let mut child = self.nodes[state].child;
        while child != ROOT && self.nodes[child].byte != byte {
            child = self.nodes[child].sibling;
        }
        child
    }

    /// Sets the fallbacks, shorter prefixes first.
    fn set_fallbacks(&mut self) {
        let mut order = vec![ROOT];
        let mut next = 0;
        while let Some(state) = order.get(next).copied() {
            next += 1;
            let mut child = self.nodes[state].child;
            while child != ROOT {
                let byte = self.nodes[child].byte;
                if state != ROOT {
                    self.nodes[child].fallback = self.step(self.nodes[state].fallback, byte);
                }
                if self.nodes[child].longest == 0 {
                    self.nodes[child].longest = self.nodes[self.nodes[child].fallback].longest;
                }
                order.push(child);
                child = self.nodes[child].sibling;
            }
        }
    }

    fn step(&self, mut state: usize, byte: u8) -> usize {
        loop {
            match self.child(state, byte) {
                ROOT if state == ROOT => return ROOT,
                ROOT => state = self.nodes[state].fallback,
                next => return next,
            }
        }
    }

    /// Finds the bytes of `text` that belong to a value; `None` if there are none. In a truncated
    /// text, a prefix of a value at its end counts as well.
    fn covered(&self, text: &[u8], is_truncated: bool) -> Option<Covered> {
        let mut covered: Option<Covered> = None;
        let mut cover = |from, to| {
            covered
                .get_or_insert_with(|| Covered::none_of(text.len()))
                .add(from, to);
        };
        let mut state = ROOT;
        for (index, byte) in text.iter().enumerate() {
            state = self.step(state, *byte);
            let longest = self.nodes[state].longest;
            if longest > 0 {
                cover(index + 1 - longest, index + 1);
            }
        }
        let depth = self.nodes[state].depth;
        if is_truncated && depth > 0 {
            cover(text.len() - depth, text.len());
        }
        covered
    }

    /// Adds the bytes of `text` that belong to a value, beyond the first `known`, which were added before.
    /// Returns how many bytes at its end are the start of a value.
    pub(crate) fn cover(&self, text: &[u8], covered: &mut Covered, known: usize) -> usize {
        let mut state = ROOT;
        for (index, byte) in text.iter().enumerate() {
            state = self.step(state, *byte);
            let (longest, end) = (self.nodes[state].longest, index + 1);
            if longest > 0 && end > known {
                covered.add(end - longest, end);
            }
        }
        self.nodes[state].depth
    }

    fn mask(&self, text: &mut Vec<u8>, is_truncated: bool) {
        while let Some(covered) = self.covered(text, is_truncated) {
            covered.replace_in(text);
            if !self.can_rematch {
                return;
            }
            // The end is masked. The mask there may be a prefix of a value.
            if is_truncated {
                return self.mask(text, false);
            }
        }
    }

    fn mask_text(&self, text: &mut String) {
        self.mask_string(text, false);
    }

    fn mask_string(&self, text: &mut String, is_truncated: bool) {
        if self.covered(text.as_bytes(), is_truncated).is_none() {
            return;
        }
        let mut bytes = std::mem::take(text).into_bytes();
        self.mask(&mut bytes, is_truncated);
        *text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    }

    /// Masks a text that may quote shortened texts: before each ellipsis, a prefix of a value counts.
    fn mask_message(&self, text: &mut String) {
        self.mask_text(text);
        let mut parts: Vec<String> = text.split(ELLIPSIS).map(str::to_owned).collect();
        if let Some((_last, shortened)) = parts.split_last_mut() {
            for part in shortened {
                self.mask_string(part, true);
            }
        }
        *text = parts.join(ELLIPSIS);
    }

    fn mask_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::Null | Value::Bool(_) => (),
            Value::Number(number) => {
                let mut text = number.to_string();
                let before = text.len();
                self.mask_text(&mut text);
                if text.len() != before {
                    *value = Value::String(text);
                }
            }
            Value::String(text) => self.mask_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(entries) => {
                let masked = std::mem::take(entries)
                    .into_iter()
                    .map(|(mut key, mut value)| {
                        self.mask_text(&mut key);
                        self.mask_json(&mut value);
                        (key, value)
                    });
                *entries = masked.collect();
            }
        }
    }

    fn mask_output(&self, output: &mut serde_json::Value) {
        self.mask_json(output);
        // A value that is itself JSON may span several keys and strings.
        if self.covered(output.to_string().as_bytes(), false).is_some() {
            *output = serde_json::Value::String(MASK.to_owned());
        }
    }

    fn mask_report(&self, report: &mut Report) {
        // All fields are listed, so that a new field requires a decision here.
        let Report {
            error,
            commands,
            stdout,
            stderr,
            recorded_output,
            outputs,
            output,
            denials,
            egress,
            plan,
            view,
            warnings,
            schema_version: _,
            run_id: _,
            runner_version: _,
            started_at: _,
            outcome: _,
            exit: _,
            cancelled_by: _,
            timings: _,
            steps: _,
            usage: _,
            samples: _,
            inputs: _,
            bundle: _,
            workspace_sources: _,
            kept: _,
            observation: _,
            secrets: _,
        } = report;
        let Plan {
            argv,
            limits: _,
            enforcement,
            cgroup_backend: _,
            syscall_policy: _,
            run_form: _,
            bound_programs: _,
            runner: _,
            image: _,
            // Preparation runs end before a secret is read.
            preparation: _,
        } = plan;
        let recorded = recorded_output.iter_mut();
        let recorded = recorded.flat_map(|output| [&mut output.stdout, &mut output.stderr]);
        for stream in [stdout, stderr].into_iter().chain(recorded) {
            if let Some(captured) = &mut stream.captured {
                self.mask(captured, stream.dropped_bytes > 0);
            }
        }
        if let Some(output) = output {
            self.mask_output(output);
        }
        let errors = outputs
            .iter_mut()
            .filter_map(|output| output.error.as_mut());
        for error in errors.chain(error) {
            // A line of the manifest belongs to an error before a secret is read.
            error.source_line = None;
            self.mask_message(&mut error.message);
            error
                .hint
                .iter_mut()
                .for_each(|hint| self.mask_message(hint));
        }
        for denial in denials {
            self.mask_denial(denial);
        }
        self.mask_egress(egress);
        argv.iter_mut().for_each(|text| self.mask_text(text));
        let commands = commands.iter_mut().flat_map(|all| &mut all.latest);
        for word in commands.flat_map(|command| &mut command.argv) {
            self.mask_message(word);
        }
        // Reasons may name paths.
        for axis in enforcement {
            axis.reason
                .iter_mut()
                .for_each(|reason| self.mask_message(reason));
        }
        for path in view.iter_mut().flatten() {
            self.mask_text(&mut path.path);
            path.from.iter_mut().for_each(|from| self.mask_text(from));
        }
        for warning in warnings {
            self.mask_message(&mut warning.message);
        }
    }

    fn mask_names(&self, report: &mut Report) {
        for denial in &mut report.denials {
            self.mask_denial(denial);
        }
        self.mask_egress(&mut report.egress);
    }

    fn mask_denial(&self, denial: &mut Denial) {
        self.mask_text(&mut denial.object);
        for text in [&mut denial.host, &mut denial.ip, &mut denial.hint] {
            text.iter_mut().for_each(|text| self.mask_text(text));
        }
    }

    fn mask_egress(&self, egress: &mut EgressReport) {
        // The allowed entries come from the caller and the manifest, never from a body.
        let EgressReport {
            hosts,
            unreachable,
            capture: _,
            allowed: _,
            unreachable_beyond: _,
            denials_beyond: _,
            lost_questions: _,
            lost_datagrams: _,
            published: _,
        } = egress;
        let reached = hosts.iter_mut().map(|traffic| &mut traffic.host);
        let unreached = unreachable.iter_mut().map(|entry| &mut entry.host);
        reached
            .chain(unreached)
            .for_each(|host| self.mask_text(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use spec::egress_report::{HostTraffic, UnreachableCause, UnreachableHost};
    use spec::outcome::Outcome;
    use spec::plan_report::{PlannedEntry, PlannedPath};
    use spec::report::{Enforcement, EnforcementState, ErrorReport, StreamReport, WarningReport};

    fn finder(values: &[&[u8]]) -> Finder {
        let patterns: Vec<Secret> = values.iter().flat_map(|value| patterns(value)).collect();
        Finder::new(&patterns)
    }

    fn masked(values: &[&[u8]], text: &[u8], cut: bool) -> String {
        let mut text = text.to_vec();
        finder(values).mask(&mut text, cut);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn holds(text: &[u8], value: &[u8]) -> bool {
        text.windows(value.len()).any(|window| window == value)
    }

    #[test]
    fn each_value_is_replaced_and_what_is_around_it_stays() {
        for (values, text, expected) in [
            (
                &[&b"s3cret"[..]][..],
                &b"a s3cret b s3cret"[..],
                "a *** b ***",
            ),
            (&[b"s3cret"], b"s3cres3crets3cre", "s3cre***s3cre"),
            (&[b"s3cret"], b"S3CRET s3cre t", "S3CRET s3cre t"),
            (&[b"abcd", b"cdef"], b"xabcdefx", "x***x"),
            (&[b"abcdef", b"cd.."], b"abcdeabcdef", "abcde***"),
            (&[b"bcde", b"abcdefgh"], b"abcdefg", "a***fg"),
            (&[b"aaaa"], b"aaaaaaaa aaa", "*** aaa"),
            (&[b"one\ntwo-of-it\n"], b"one\ntwo-of-it\n", "***\n"),
            (&[b"one\ntwo-of-it"], b"one\r\ntwo-of-it", "***"),
            (&[b"one\ntwo-of-it"], b"  two-of-it;one", "  ***;one"),
            (
                &[b"say \"x\"\n\tnow"],
                br#"{"k":"say \"x\"\n\tnow"}"#,
                r#"{"k":"***"}"#,
            ),
            (&[b" padded "], b"[padded]", "[***]"),
            (&[b"    "], b"a    b", "a***b"),
        ] {
            assert_eq!(masked(values, text, false), expected, "{text:?}");
        }
    }

    #[test]
    fn a_prefix_of_a_value_is_masked_only_at_the_end_of_a_truncated_text() {
        for (text, expected) in [
            (&b"x s3cre"[..], "x ***"),
            (b"x s", "x ***"),
            (b"s3cret s3", "*** ***"),
            (b"x s3cree", "x s3cree"),
            (b"", ""),
        ] {
            assert_eq!(masked(&[b"s3cret"], text, true), expected);
        }
        assert_eq!(masked(&[b"s3cret"], b"x s3cre", false), "x s3cre");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_masked_before_they_are_encoded() {
        let value: &[u8] = b"\xff\xfe\x00\x80";
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.captured = Some([b"<", value, b">\xf0"].concat());
        let mut masks = Masks::default();
        assert!(masks.add(value));
        masks.mask_report(&mut report);
        let document = serde_json::to_value(&report).expect("serialised");
        assert_eq!(document["stdout"]["text"], "<***>\u{fffd}");
        assert_eq!(document["stdout"]["text_base64"], "PCoqKj7w");
    }

    #[test]
    fn all_texts_of_the_body_in_a_report_are_masked() {
        let secret = "can\"ary\n7f3a";
        let mut report = Report::new("id".to_owned(), Outcome::Failed);
        let said = |text: &str| format!("<{text}>");
        report.stdout = StreamReport {
            bytes: 100,
            dropped_bytes: 80,
            captured: Some(format!("{secret} can\"ar").into_bytes()),
        };
        report.stderr.captured = Some(said(secret).into_bytes());
        report.output = Some(json!({
            secret: [secret, {"deep": said(secret)}, 1, null, true]
        }));
        let error = ErrorReport {
            code: "invalid-output".to_owned(),
            // A validator quotes the value as JSON, and the message is escaped.
            message: escape(json!(secret).to_string().as_bytes()),
            hint: Some(said(secret)),
            source_line: None,
        };
        report.error = Some(error);
        report.warnings.push(WarningReport::new("w", said(secret)));
        report.denials.push(Denial {
            kind: "file".to_owned(),
            object: escape(secret.as_bytes()),
            operation: None,
            rule: "r".to_owned(),
            errno: None,
            reason: None,
            protocol: None,
            host: None,
            ip: None,
            port: None,
            hint: None,
            certainty: None,
            count: 1,
            first_ms: Some(0),
        });
        report.plan.argv = vec![escape(secret.as_bytes())];
        report.plan.enforcement = vec![Enforcement {
            axis: "landlock".to_owned(),
            state: EnforcementState::Enforced,
            reason: Some(escape(secret.as_bytes())),
        }];
        report.view = Some(vec![PlannedPath {
            path: escape(secret.as_bytes()),
            what: PlannedEntry::Host,
            from: Some(escape(secret.as_bytes())),
            writable: false,
            size_bytes: None,
            decided_by: "--ro".to_owned(),
        }]);
        let mut masks = Masks::default();
        assert!(masks.add(secret.as_bytes()));
        masks.mask_report(&mut report);
        let document = serde_json::to_value(&report).expect("serialised");
        assert!(!document.to_string().contains("ary"), "{document:#}");
        assert_eq!(document["stdout"]["text"], "*** ***");
        assert_eq!(document["stdout"]["bytes"], 100);
        let expected = json!({"***": ["***", {"deep": "<***>"}, 1, null, true]});
        assert_eq!(document["output"], expected);
    }

    #[test]
    fn a_value_in_a_host_name_is_masked_in_either_case() {
        let name = |host: &str| format!("{host}.evil.com");
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        for host in ["S3cretValue", "s3cretvalue"] {
            report.denials.push(Denial {
                kind: "net".to_owned(),
                object: name(host),
                operation: None,
                rule: "network.egress".to_owned(),
                errno: None,
                reason: Some(spec::denial_reason::DenialReason::NameNotAllowed),
                protocol: Some("dns".to_owned()),
                host: Some(name(host)),
                ip: None,
                port: None,
                hint: Some(format!("--allow-net {}", name(host))),
                certainty: None,
                count: 1,
                first_ms: Some(0),
            });
        }
        report.egress.hosts.push(HostTraffic {
            host: name("s3cretvalue"),
            ports: vec![443],
            connections: 1,
            sent_bytes: 0,
            received_bytes: 0,
        });
        report.egress.unreachable.push(UnreachableHost {
            host: name("s3cretvalue"),
            port: 1,
            cause: UnreachableCause::NoAddress,
            count: 1,
        });
        let mut masks = Masks::default();
        assert!(masks.add(b"S3cretValue"));
        masks.mask_report(&mut report);
        let document = serde_json::to_value(&report).expect("serialised");
        let text = document.to_string();
        assert!(!text.to_ascii_lowercase().contains("cretval"), "{text}");
        assert_eq!(document["denials"][1]["host"], "***.evil.com");
        assert_eq!(document["denials"][1]["hint"], "--allow-net ***.evil.com");
    }

    #[test]
    fn json_values_and_numbers_are_masked_in_the_output_document() {
        let values: [(&[u8], _); 3] = [
            (br#"{"a":"b","c":1}"#, json!({"a": "b", "c": 1})),
            (br#"["a","b"]"#, json!({"x": ["a", "b"]})),
            (b"12345678", json!({"x": 12_345_678, "y": [1.5]})),
        ];
        for (value, mut output) in values {
            finder(&[value]).mask_output(&mut output);
            let text = output.to_string();
            assert!(!holds(text.as_bytes(), value), "{text}");
        }
    }

    #[test]
    fn a_value_that_a_message_cuts_is_masked() {
        use spec::io::contract::{Contract, read_document};
        let permit = spec::parse_permit::ParsePermit::for_trusted_text();
        let contract = Contract::compile(&permit, &json!({"type": "array"})).expect("compiled");
        let mismatch = |text: &str| {
            let found = contract.validate(&json!(text)).expect_err("no list");
            format!("/: {}; /: other", found[0].message)
        };
        let wide = |text: &str| match read_document(&permit, text.as_bytes(), usize::MAX) {
            Ok(_) => unreachable!("it needs more than 64 bits"),
            Err(error) => error.to_string(),
        };
        let cases = [
            ("S\"cret/7f3a~12", "x", &mismatch as &dyn Fn(&str) -> String),
            ("918273645564738291", "1", &wide),
        ];
        for (secret, filler, message_of) in cases {
            let mut masks = Masks::default();
            assert!(masks.add(secret.as_bytes()));
            for length in 215..245 {
                let message = message_of(&(filler.repeat(length) + secret));
                let mut report = Report::new("id".to_owned(), Outcome::Failed);
                report.warnings = vec![WarningReport::new("w", message.clone())];
                report.error =
                    Some(ErrorReport::new("invalid-output", message.clone()).with_hint(message));
                masks.mask_report(&mut report);
                let text = serde_json::to_string(&report).expect("serialised");
                let start = format!("{filler}{}", &secret[..1]);
                assert!(!text.contains(&start), "{length}: {text}");
                assert!(text.contains(filler), "{length}: {text}");
            }
        }
    }

    #[test]
    fn a_value_in_a_json_pointer_is_masked() {
        let secret = "a/b~c\\d\te";
        let pointer = format!("/{}", spec::document::escape_pointer_step(secret));
        for text in [&pointer, &escape(pointer.as_bytes())] {
            assert_eq!(masked(&[secret.as_bytes()], text.as_bytes(), false), "/***");
        }
    }

    #[test]
    fn short_values_are_not_searched() {
        let mut masks = Masks::default();
        assert!(!masks.add(b"abc"));
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.captured = Some(b"abc".to_vec());
        masks.mask_report(&mut report);
        assert_eq!(report.stdout.text(), Some("abc"));
    }

    #[test]
    fn a_long_repetitive_text_is_masked_in_linear_time() {
        // With quadratic time in either size, this takes hours.
        let value = vec![b'a'; 64 << 10];
        let mut almost = vec![b'a'; 8 << 20];
        for at in (0..almost.len()).step_by(value.len()) {
            almost[at] = b'b';
        }
        let before = almost.clone();
        let finder = finder(&[&value]);
        finder.mask(&mut almost, false);
        assert!(almost == before);
        let mut text = vec![b'a'; 8 << 20];
        finder.mask(&mut text, false);
        assert_eq!(text, MASK.as_bytes());
    }

    /// A small alphabet, so that values overlap, contain each other and repeat.
    fn word(least: usize) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'a'), Just(b'b'), Just(b'*'), Just(0xff)];
        prop::collection::vec(byte, least..9)
    }

    proptest! {
        #[test]
        fn a_masked_text_contains_no_value(
            values in prop::collection::vec(word(VALUE_BYTES_MIN), 1..4),
            pieces in prop::collection::vec(prop_oneof![
                word(0).prop_map(Err),
                (0_usize..4).prop_map(Ok),
            ], 0..12),
            cut: bool,
        ) {
            let text: Vec<u8> = pieces.iter().flat_map(|piece| match piece {
                Ok(index) => values[index % values.len()].clone(),
                Err(other) => other.clone(),
            }).collect();
            let patterns: Vec<Secret> = values.iter().flat_map(|value| patterns(value)).collect();
            let finder = Finder::new(&patterns);
            let mut masked = text.clone();
            finder.mask(&mut masked, cut);
            for value in &values {
                prop_assert!(!holds(&masked, value), "{:?}", masked.escape_ascii().to_string());
            }
            let clean = !patterns.iter().any(|pattern| holds(&text, pattern.bytes()));
            if clean && !cut {
                prop_assert_eq!(masked, text);
            }
        }

        #[test]
        fn exactly_the_bytes_of_values_are_covered(
            values in prop::collection::vec(word(VALUE_BYTES_MIN), 1..4),
            text in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..200),
        ) {
            let secrets: Vec<Secret> = values.iter().cloned().map(Secret::new).collect();
            let covered = Finder::new(&secrets).covered(&text, false);
            for index in 0..text.len() {
                let expected = values.iter().any(|value| {
                    let first = (index + 1).saturating_sub(value.len());
                    (first..=index).any(|at| text[at..].starts_with(value))
                });
                let found = covered.as_ref().is_some_and(|covered| covered.has(index));
                prop_assert_eq!(found, expected, "byte {}", index);
            }
        }
    }
}
