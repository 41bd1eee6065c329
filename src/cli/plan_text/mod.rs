//! `runner plan` as text, within the width of a terminal. What is the same for every run is brief.

mod reach;

use crate::cli::print::{Printer, Tone, columns, escape_hidden, excerpt, wrap};
use spec::image_report::{ImageFound, ImageReport, RootKind};
use spec::limits::Limit;
use spec::path::quoted;
use spec::plan_report::{
    BUILT_IN_MAXIMUM, DEFAULT, FIXED, HOST_POLICY, PlanReport, PlanVerdict, PlannedEntry,
    PlannedPath, PlannedProgram, PlannedSource, PlannedStdin,
};
use spec::report::{EnforcementState, LimitReport, LimitSource, Plan};
use spec::run_form::RunForm;
use spec::runner_report::EngineName;
use spec::units::{bytes, count, milliseconds};

const LABEL_COLUMNS: usize = 14;

/// With `-v` also what is the same for every run.
#[must_use]
pub(crate) fn text(document: &PlanReport, printer: &Printer) -> String {
    let mut page = Page {
        text: String::new(),
        printer,
    };
    page.runs(document);
    page.sees(document);
    page.reads(document);
    page.reaches(document);
    page.limits(document);
    page.host_policy(document);
    page.notes(document);
    page.verdict(document);
    page.text
}

struct Page<'print> {
    text: String,
    printer: &'print Printer,
}

impl Page<'_> {
    fn title(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(title);
        self.text.push('\n');
    }

    fn row(&mut self, label: &str, value: &str) {
        self.toned(label, None, value);
    }

    fn toned(&mut self, label: &str, tone: Option<Tone>, value: &str) {
        let indent = LABEL_COLUMNS + 2;
        let label = escape_hidden(label);
        let label = if label.chars().count() < LABEL_COLUMNS {
            format!("  {}", columns(&label, LABEL_COLUMNS))
        } else {
            // Too long for its column: on a line of its own, not cut, so that it can be copied.
            format!("  {label}\n{}", " ".repeat(indent))
        };
        let label = tone.map_or(label.clone(), |tone| self.printer.coloured(tone, &label));
        let value = wrap(&escape_hidden(value), indent);
        self.text.push_str(&label);
        self.text.push_str(&value);
        self.text.push('\n');
    }

    fn line(&mut self, tone: Option<Tone>, line: &str) {
        let line = wrap(&escape_hidden(line), 0);
        let line = tone.map_or(line.clone(), |tone| self.printer.coloured(tone, &line));
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// Not wrapped: it may contain a command to copy.
    fn hint(&mut self, text: &str) {
        let text = self.printer.coloured(Tone::Hint, text);
        self.text.push_str(&text);
        self.text.push('\n');
    }

    fn runs(&mut self, document: &PlanReport) {
        if document.program.is_none() && document.manifest.is_none() {
            return;
        }
        self.title("What runs");
        if let Some(manifest) = &document.manifest {
            let trust = match manifest.trust {
                "caller" => "the caller's: it grants what it asks for",
                _ => "the bundle's: it only asks",
            };
            match manifest.file.as_str() {
                "" => self.row("manifest", "none: everything by default"),
                file => self.row("manifest", &format!("{file}, {trust}")),
            }
        }
        if let Some(bundle) = &document.bundle {
            self.row(
                "bundle",
                &format!(
                    "{}, {}",
                    count(bundle.entries, "entry"),
                    bytes(bundle.bytes)
                ),
            );
            match bundle.content_digest {
                // Beside its label it would be wider than a terminal.
                Some(digest) => self.text.push_str(&format!("  identity\n    {digest}\n")),
                None => self.row("identity", "not known until its entries are put in order"),
            }
        }
        if let Some(program) = &document.program {
            self.program(&document.plan, program);
        }
        self.engine(document);
        if let Some(image) = &document.plan.image {
            self.image(image);
        }
        let runner = document.plan.runner.iter();
        for need in runner.flat_map(|runner| &runner.needs_unsatisfied) {
            self.row("not met", &need.to_string());
        }
        self.installs(document);
    }

    fn engine(&mut self, document: &PlanReport) {
        let (plan, by) = (&document.plan, &document.engine);
        let engine = match (&plan.runner, &plan.image) {
            (Some(runner), _) => runner.engine,
            (None, Some(_)) => EngineName::Sandbox,
            (None, None) if document.manifest.is_none() => EngineName::Subprocess,
            // The run is refused before the engine is decided.
            (None, None) => return,
        };
        let engine = match engine {
            EngineName::Subprocess => "subprocess",
            EngineName::Sandbox => "sandbox",
        };
        let mut text = format!("{engine} ({})", by.decided_by);
        let runner = plan.runner.as_ref();
        if runner.is_some_and(|runner| runner.downgraded) {
            text.push_str(", downgraded from in-process");
        }
        let image = runner.and_then(|runner| runner.image.as_ref());
        if let (Some(image), Some(by)) = (image, &by.image_by) {
            text.push_str(&format!(", image {image} ({by})"));
        }
        if let Some(provider) = by.provider {
            text.push_str(&format!(", provider {provider}"));
        }
        self.row("engine", &text);
    }

    fn image(&mut self, image: &ImageReport) {
        let found = match image.found {
            ImageFound::Store => "kept here",
            ImageFound::Pulled | ImageFound::Absent => "would be pulled or unpacked",
        };
        let root = match image.root {
            RootKind::Writable => "its root writable for this run only",
            RootKind::ReadOnly => "its root read-only",
        };
        let user = image.user.map_or_else(String::new, |user| {
            format!(", as {}:{}", user.uid, user.gid)
        });
        self.row("image", &format!("{}, {found}, {root}{user}", image.place));
        if let Some(digest) = image.digest {
            // Beside its label it would be wider than a terminal.
            self.text
                .push_str(&format!("  its manifest\n    {digest}\n"));
        }
    }

    fn program(&mut self, plan: &Plan, program: &PlannedProgram) {
        let form = plan.run_form.map_or("command", RunForm::name);
        let by = program.interpreter.as_deref();
        let by = by.map_or_else(String::new, |by| format!(" by {by}"));
        self.row("run form", &format!("{form}{by} ({})", program.decided_by));
        let words: Vec<String> = plan.argv.iter().map(|word| quoted(word)).collect();
        self.row("argv", &words.join(" "));
        let path = match (&program.path, &program.host_path) {
            (Some(path), Some(host)) if path == host => format!("{path}, the host's"),
            (Some(path), Some(host)) => format!("{path}, on the host {host}"),
            (Some(path), None) => path.clone(),
            (None, _) => "not found".to_owned(),
        };
        self.row("program", &path);
        for bound in &plan.bound_programs {
            self.row("", &format!("made visible for it: {bound}"));
        }
        if program.path.is_none() && !program.looked_for_in.is_empty() {
            let places = program.looked_for_in.join(" ");
            self.row("", &format!("looked for in {places}"));
        }
        self.row(
            "starts in",
            &format!(
                "{} ({})",
                program.working_directory, program.working_directory_by
            ),
        );
    }

    fn sees(&mut self, document: &PlanReport) {
        if document.view.is_empty() {
            return;
        }
        self.title("What it sees");
        if self.printer.is_verbose() {
            for path in &document.view {
                self.row(&path.path, &describe(path));
            }
        } else {
            let fixed = |is_shown: fn(&PlannedPath) -> bool| {
                let fixed = document.view.iter().filter(|path| path.decided_by == FIXED);
                let paths: Vec<&str> = fixed
                    .filter(|path| is_shown(path))
                    .map(|path| path.path.as_str())
                    .collect();
                paths.join(" ")
            };
            self.row(
                "read-only",
                &fixed(|path| {
                    matches!(path.what, PlannedEntry::Host | PlannedEntry::Link)
                        && !path.path.starts_with("/dev/")
                }),
            );
            self.row("writable", &fixed(|path| path.what == PlannedEntry::Tmpfs));
            self.row(
                "its own",
                "/proc /dev, and a few files of /etc; -v lists them",
            );
            for path in document.view.iter().filter(|path| path.decided_by != FIXED) {
                self.row(&path.path, &describe(path));
            }
        }
        for source in &document.workspace_sources {
            self.row("source", &describe_source(source));
        }
        let mut by_origin: Vec<(&str, Vec<&str>)> = Vec::new();
        for variable in &document.environment {
            let name = variable.name.as_str();
            match by_origin
                .iter_mut()
                .find(|(by, _)| *by == variable.given_by)
            {
                Some((_, names)) => names.push(name),
                None => by_origin.push((&variable.given_by, vec![name])),
            }
        }
        for (index, (by, names)) in by_origin.iter().enumerate() {
            let label = if index == 0 { "variables" } else { "" };
            self.row(label, &format!("{} ({by})", names.join(" ")));
        }
    }

    fn reads(&mut self, document: &PlanReport) {
        if document.program.is_none() {
            return;
        }
        self.title("What goes in and out");
        let stdin = match document.stdin {
            PlannedStdin::Null => "nothing (/dev/null)",
            PlannedStdin::InputDocument => "the structured input",
            PlannedStdin::Caller => "the caller's (-i)",
        };
        self.row("stdin", stdin);
        if document.input_document {
            self.row("input", "/runner/input.json");
        }
        let files = [("stage", &document.inputs), ("sync", &document.outputs)];
        for (what, files) in files {
            for file in files {
                let workspace = file.workspace.as_deref().unwrap_or("(no workspace)");
                let of_workspace = format!("{workspace}/{}", file.workspace_path);
                let size = file.bytes.map(|size| format!(", {}", bytes(size)));
                let (from, to) = match what {
                    "stage" => (&of_workspace, &file.path),
                    _ => (&file.path, &of_workspace),
                };
                let size = size.unwrap_or_default();
                self.row(what, &format!("{from} to {to}{size} ({})", file.decided_by));
            }
        }
    }

    fn limits(&mut self, document: &PlanReport) {
        if document.plan.limits.is_empty() {
            return;
        }
        self.title("Limits");
        for limit in &document.plan.limits {
            self.limit(&document.plan, limit);
        }
        if let Some(grace) = document.grace_ms {
            let text = format!(
                "{} ({}), by supervisor",
                milliseconds(grace),
                document.grace_by
            );
            self.row("grace", &text);
        }
        self.title(&format!(
            "Confinement (cgroup back end: {})",
            document.plan.cgroup_backend
        ));
        let enforced = document.plan.enforcement.iter();
        let enforced: Vec<&str> = enforced
            .filter(|axis| axis.state == EnforcementState::Enforced)
            .map(|axis| axis.axis.as_str())
            .collect();
        self.toned("enforced", Some(Tone::Good), &enforced.join(" "));
        let policy = document.plan.syscall_policy.zip(document.syscall_policy_by);
        if let Some((policy, by)) = policy {
            let text = format!("{} policy ({by})", policy.name());
            self.row("system calls", &text);
        }
        for axis in &document.plan.enforcement {
            let (state, tone) = match axis.state {
                EnforcementState::Enforced => continue,
                EnforcementState::Weaker => ("weaker", Tone::Warning),
                EnforcementState::Absent => ("absent", Tone::Warning),
            };
            let reason = axis.reason.as_deref().unwrap_or("no reason is known");
            self.toned(state, Some(tone), &format!("{}: {reason}", axis.axis));
        }
    }

    fn limit(&mut self, plan: &Plan, limit: &LimitReport) {
        let name = limit.limit.row().word;
        let Some(value) = limit.effective else {
            self.row(name, &format!("unlimited ({})", limit.source));
            return;
        };
        let shown = limit.limit.amount(value);
        let mut text = format!("{shown} ({}), by {}", limit.source, limit.enforced_by);
        let axis = limit.limit.axis();
        let mut axes = plan.enforcement.iter();
        match axes
            .find(|found| Some(found.axis.as_str()) == axis)
            .map(|found| found.state)
        {
            Some(EnforcementState::Weaker) => text.push_str(", weaker"),
            Some(EnforcementState::Absent) => text.push_str(", not enforced here"),
            Some(EnforcementState::Enforced) | None => (),
        }
        let others = limit.sources.iter().filter(|other| other.value != value);
        let others: Vec<String> = others
            .map(|other| other_source(limit.limit, other))
            .collect();
        if !others.is_empty() {
            text.push_str(&format!("; also {}", others.join(", ")));
        }
        self.row(name, &text);
    }

    fn host_policy(&mut self, document: &PlanReport) {
        let all = self.printer.is_verbose();
        let values: Vec<_> = document
            .host_policy
            .iter()
            .filter(|value| all || value.decided_by != [DEFAULT])
            .collect();
        if values.is_empty() {
            return;
        }
        self.title("Host policy");
        for value in values {
            let by = value.decided_by.join(", ");
            self.row(&value.key, &format!("{} ({by})", value.value));
        }
    }

    fn notes(&mut self, document: &PlanReport) {
        if document.ignored.is_empty()
            && document.warnings.is_empty()
            && document.unchecked.is_empty()
        {
            return;
        }
        self.title("Notes");
        if !document.ignored.is_empty() {
            self.row("ignored", &document.ignored.join(" "));
        }
        for unchecked in &document.unchecked {
            self.row("not checked", unchecked);
        }
        for warning in &document.warnings {
            let text = format!("{} ({})", warning.message, warning.code);
            self.toned("warning", Some(Tone::Warning), &text);
        }
    }

    fn verdict(&mut self, document: &PlanReport) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (verdict, tone) = match document.verdict {
            PlanVerdict::WouldStart => ("would start", Tone::Good),
            PlanVerdict::WouldBeRefused => ("would be refused", Tone::Error),
            PlanVerdict::WouldFail => ("would fail", Tone::Error),
        };
        let Some(error) = &document.error else {
            self.line(Some(tone), verdict);
            return;
        };
        let text = format!("{verdict}: {} ({})", error.message, error.code);
        self.line(Some(tone), &text);
        if let Some(line) = &error.source_line {
            self.hint(&excerpt(line));
        }
        match &error.hint {
            Some(_) if error.code == "grant_required" => self.missing_flags(document),
            Some(hint) => self.hint(&escape_hidden(&format!("hint: {hint}"))),
            None => (),
        }
        for further in &document.further_errors {
            let text = format!("and then: {} ({})", further.message, further.code);
            self.line(None, &text);
        }
    }

    /// One flag per line, not wrapped, so that it can be copied.
    fn missing_flags(&mut self, document: &PlanReport) {
        self.line(
            Some(Tone::Hint),
            "hint: if you trust the bundle that far, add:",
        );
        let mut flags: Vec<&str> = Vec::new();
        for missing in &document.missing_grants {
            if !flags.contains(&missing.flag.as_str()) {
                flags.push(&missing.flag);
            }
        }
        for flag in flags {
            self.text.push_str(&format!("  {}\n", escape_hidden(flag)));
        }
    }
}

fn describe(path: &PlannedPath) -> String {
    let access = if path.writable {
        "writable"
    } else {
        "read-only"
    };
    let what = match (path.what, &path.from) {
        (PlannedEntry::Link, Some(to)) => format!("link to {to}"),
        (PlannedEntry::Host, Some(from)) => format!("{access}, {from} of the host"),
        (PlannedEntry::Image | PlannedEntry::Source, Some(from)) => format!("{access}, {from}"),
        (
            PlannedEntry::Host | PlannedEntry::Link | PlannedEntry::Image | PlannedEntry::Source,
            None,
        ) => access.to_owned(),
        (PlannedEntry::Device, _) => "device".to_owned(),
        (PlannedEntry::Tmpfs, _) => match path.size_bytes {
            Some(size) => format!("private, writable, {}", bytes(size)),
            None => "private, writable".to_owned(),
        },
        (PlannedEntry::File, _) => "the runner's own".to_owned(),
        (PlannedEntry::Proc, _) => "processes of the run".to_owned(),
        (PlannedEntry::Devpts, _) => "terminals of the run".to_owned(),
        (PlannedEntry::Mask, _) => "covered".to_owned(),
    };
    format!("{what} ({})", path.decided_by)
}

fn describe_source(source: &PlannedSource) -> String {
    let part = source.subpath.as_deref();
    let part = part.map_or_else(String::new, |part| format!(", {part} of it"));
    let kept = match source.is_kept {
        Some(true) => "kept here",
        Some(false) => "would be pulled",
        None => "would be resolved, since a tag does not fix its content",
    };
    let without = if source.required {
        ""
    } else {
        ", left out if it is not available"
    };
    format!(
        "{} at {}{part}: {}; {kept}{without}; asked by {}; {}",
        source.id,
        source.mount_path,
        source.reference,
        source.asked_by,
        granted(source.granted_by.as_deref()),
    )
}

fn granted(by: Option<&str>) -> String {
    by.map_or_else(|| "not granted".to_owned(), |by| format!("granted by {by}"))
}

fn other_source(limit: Limit, LimitSource { source, value }: &LimitSource) -> String {
    let value = limit.amount(*value);
    match source.as_str() {
        HOST_POLICY | BUILT_IN_MAXIMUM => format!("at most {value} by {source}"),
        _ => format!("{value} by {source}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::MessageFlags;
    use crate::cli::context::ProcessContext;
    use spec::report::ErrorReport;

    #[test]
    fn a_limit_that_a_flag_lifts_is_the_flags() {
        let mut document = PlanReport::refused(ErrorReport::new("usage", "wrong"));
        document.plan.limits.push(LimitReport {
            limit: Limit::WallTime,
            requested: None,
            effective: None,
            enforced_by: "none",
            source: "flag".to_owned(),
            sources: Vec::new(),
        });
        let printer = Printer::new(MessageFlags::default(), &ProcessContext::default());
        let text = text(&document, &printer);
        assert!(text.contains("wall time     unlimited (flag)"), "{text}");
    }
}
