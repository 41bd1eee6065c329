//! `explain_denial`: `runner why` with the flags of the server.

use std::ffi::OsString;

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Context;
use crate::mcp::answer::{Answer, Refusal};
use crate::mcp::call::Call;
use crate::mcp::handler::Server;
use crate::mcp::text::Part;

/// Most bytes of an answer of `runner why`.
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct Arguments {
    /// Ask about this path, as a command in the sandbox names it
    path: Option<String>,
    /// What is done with `path` [default: read]
    operation: Option<Operation>,
    /// Ask about connections to this host: HOST or HOST:PORT
    host: Option<String>,
    /// Ask about the system call of this name
    syscall: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Read,
    Write,
    Exec,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(in crate::mcp) struct Document {
    /// The rule that decides; null: nothing was asked
    answer: Option<Rule>,
    /// How the sandbox ended, and what it was denied; null: it is there
    ended: Option<String>,
}

/// What `runner why --json` answers.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct Rule {
    /// The question
    asked: String,
    /// allowed, denied, or depends: on arguments of a system call, or on what only a run can tell
    pub(super) verdict: String,
    /// The error that a command gets; null: none, or not always the same
    errno: Option<String>,
    /// What is there, as a word of `runner schema why`
    pub(super) state: String,
    /// The same in words
    found: String,
    /// The rule
    rule: String,
    /// Where the rule comes from: a flag, a key of a manifest, `host-policy`, `default` or `fixed`
    decided_by: String,
    /// What the operator of this server can change; null: nothing
    change: Option<String>,
}

impl Rule {
    /// `runner why` looks at the host, with the rights of the caller: whether it has a path that the
    /// sandbox does not show is nothing that the agent may learn.
    fn without_the_host(self) -> Self {
        let is_private = self.state == "private" && self.verdict == "denied";
        match &*self.state {
            "hidden" | "absent" => (),
            _ if is_private => (),
            _ => return self,
        }
        Self {
            asked: self.asked,
            verdict: "denied".to_owned(),
            errno: Some("ENOENT".to_owned()),
            state: "absent".to_owned(),
            found: "nothing that the sandbox shows".to_owned(),
            rule: "the sandbox shows listed paths of the host, and what commands wrote".to_owned(),
            decided_by: "default".to_owned(),
            change: Some("--ro or --rw for the path, if the host has it".to_owned()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Why {
    answer: Option<Rule>,
    error: Option<WhyError>,
}

#[derive(Debug, Deserialize)]
struct WhyError {
    message: String,
}

impl Arguments {
    /// The flags of the question; `None`: nothing is asked.
    fn question(&self) -> Result<Option<Vec<OsString>>, Refusal> {
        let path = self.path.as_ref().map(|path| ("path", path));
        let host = self.host.as_ref().map(|host| ("host", host));
        let syscall = self.syscall.as_ref().map(|syscall| ("syscall", syscall));
        let mut asked = [path, host, syscall].into_iter().flatten();
        let (first, second) = (asked.next(), asked.next());
        if second.is_some() || self.operation.is_some() && path.is_none() {
            return Err(Refusal(
                "expected one of `path` (with `operation`), `host` and `syscall`".to_owned(),
            ));
        }
        let Some((name, value)) = first else {
            return Ok(None);
        };
        let mut flags = vec![format!("--{name}={value}").into()];
        flags.extend(self.operation.map(|operation| {
            let word = match operation {
                Operation::Read => "--op=read",
                Operation::Write => "--op=write",
                Operation::Exec => "--op=exec",
            };
            OsString::from(word)
        }));
        Ok(Some(flags))
    }
}

pub(super) async fn call(
    server: &Server,
    arguments: Arguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let Some(question) = arguments.question()? else {
        return explain_end(server).await;
    };
    let mut words = vec!["why".into()];
    words.extend(server.sandbox().flags.of_run());
    // The last one counts: the report of the sandbox is another file.
    words.extend(["-q".into(), "--json".into()]);
    words.extend(question);
    let mut call = Call::new(words);
    call.part = Part::Start(ANSWER_BYTES_MAX);
    let ended = server.execute(call, context).await?;
    let said = ended.stderr.show().text;
    let rule = read_answer(&ended.stdout.into_start(), &said).map_err(Refusal)?;
    let rule = rule.without_the_host();
    let errno = rule.errno.iter().map(|errno| format!(", {errno}"));
    let mut summary = format!("{}: {}", rule.asked, rule.verdict);
    summary.extend(errno);
    summary += &format!("\nfound: {}", rule.found);
    summary += &format!("\nrule: {} ({})", rule.rule, rule.decided_by);
    if let Some(change) = &rule.change {
        summary += &format!("\nthe operator can change it: {change}");
    }
    let answer = Answer {
        summary,
        texts: Vec::new(),
        notes: Vec::new(),
        document: Document {
            answer: Some(rule),
            ended: None,
        },
        is_error: false,
    };
    answer.into_result()
}

/// Reads what `runner why --json` wrote to its standard output and error.
///
/// # Errors
/// Why there is no answer.
pub(super) fn read_answer(stdout: &[u8], stderr: &str) -> Result<Rule, String> {
    let said = || stderr.trim_end().to_owned();
    let why: Why = serde_json::from_slice(stdout).map_err(|_error| said())?;
    let message = || why.error.map_or_else(said, |error| error.message);
    why.answer.ok_or_else(message)
}

async fn explain_end(server: &Server) -> Result<CallToolResult, Refusal> {
    if !server.sandbox().has_ended().await {
        return Err(Refusal(
            "the sandbox is there, and tells what it was denied at its end only; ask about a `path`, a \
             `host` or a `syscall`"
                .to_owned(),
        ));
    }
    let ended = without_files(&server.sandbox().explain_end().await?);
    let answer = Answer {
        summary: ended.clone(),
        texts: Vec::new(),
        notes: Vec::new(),
        document: Document {
            answer: None,
            ended: Some(ended),
        },
        is_error: false,
    };
    answer.into_result()
}

/// Without denials of files, of which `--trace` reports those that the host has.
fn without_files(text: &str) -> String {
    let mut kept = String::new();
    let mut is_left_out = false;
    for line in text.lines() {
        let (label, value) = line.split_once(' ').unwrap_or((line, ""));
        is_left_out = match label {
            "denied" => value.trim_start().starts_with("file "),
            // Of the denial before it.
            "change" => is_left_out,
            _ => false,
        };
        if !is_left_out {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_of_files_are_left_out_with_what_changes_them() {
        let text = "ended     a\nchange    b\ndenied    file read /x, ENOENT\nchange    --ro /x\n\
                    denied    syscall bpf\nchange    c\ndenied    file read /y\ndenied    net d\n";
        let expected =
            "ended     a\nchange    b\ndenied    syscall bpf\nchange    c\ndenied    net d\n";
        assert_eq!(without_files(text), expected);
    }
}
