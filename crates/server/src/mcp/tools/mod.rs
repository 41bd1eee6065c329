//! The tools: their names, descriptions and schemas, and what each call executes.

pub(super) mod bundles;
mod denials;
mod execute;
mod files;
mod processes;

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Refusal;
use super::handler::Server;

pub(super) type Context = RequestContext<RoleServer>;

/// A tool that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolName {
    ExecuteCommand,
    GetProcessOutput,
    KillProcess,
    ReadFile,
    WriteFile,
    ListFiles,
    RunBundle,
    ExplainDenial,
}

impl ToolName {
    const ALL: [Self; 8] = [
        Self::ExecuteCommand,
        Self::GetProcessOutput,
        Self::KillProcess,
        Self::ReadFile,
        Self::WriteFile,
        Self::ListFiles,
        Self::RunBundle,
        Self::ExplainDenial,
    ];

    /// The tools of a server with or without bundles.
    pub(super) fn offered(has_bundles: bool) -> impl Iterator<Item = Self> {
        let offered = move |tool: &Self| has_bundles || *tool != Self::RunBundle;
        Self::ALL.into_iter().filter(offered)
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ExecuteCommand => "execute_command",
            Self::GetProcessOutput => "get_process_output",
            Self::KillProcess => "kill_process",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::ListFiles => "list_files",
            Self::RunBundle => "run_bundle",
            Self::ExplainDenial => "explain_denial",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::ExecuteCommand => {
                "Run a command in the sandbox and return its exit code and output. `background` starts \
                 it and returns its id at once."
            }
            Self::GetProcessOutput => {
                "Return the state and the last output of a command that was started with `background`."
            }
            Self::KillProcess => "Send a signal to a command that runs, by its id.",
            Self::ReadFile => {
                "Read a part of a file of the sandbox: UTF-8 text as it is, other bytes in base64."
            }
            Self::WriteFile => {
                "Write a file of the sandbox. It replaces what the file contains, and creates missing \
                 directories."
            }
            Self::ListFiles => "List a directory of the sandbox.",
            Self::RunBundle => {
                "Run a bundle of the operator in a sandbox of its own, with the flags of this server."
            }
            Self::ExplainDenial => {
                "Explain which rule of the sandbox allows or denies a path, a host or a system call. \
                 Without a question: why the sandbox ended, and what it was denied."
            }
        }
    }

    fn annotations(self) -> ToolAnnotations {
        let reads = matches!(
            self,
            Self::GetProcessOutput | Self::ReadFile | Self::ListFiles | Self::ExplainDenial
        );
        let annotations = ToolAnnotations::new().read_only(reads);
        match self {
            // Only what the operator's flags allow.
            Self::ExecuteCommand | Self::RunBundle => annotations.open_world(true),
            Self::WriteFile => annotations.idempotent(true).open_world(false),
            _ => annotations.open_world(false),
        }
    }
}

pub(super) fn describe(tool: ToolName) -> Tool {
    let mut described = with_schemas(tool);
    described.input_schema = without_formats(&described.input_schema);
    described.output_schema = described.output_schema.as_deref().map(without_formats);
    described
}

/// `uint64` and its like are formats of OpenAPI, of which clients that validate complain.
fn without_formats(schema: &JsonObject) -> Arc<JsonObject> {
    fn remove(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.remove("format");
                object.values_mut().for_each(remove);
            }
            Value::Array(values) => values.iter_mut().for_each(remove),
            _ => (),
        }
    }
    let mut schema = schema.clone();
    schema.values_mut().for_each(remove);
    Arc::new(schema)
}

fn with_schemas(tool: ToolName) -> Tool {
    let described = Tool::new(tool.as_str(), tool.description(), JsonObject::new());
    let described = described.with_annotations(tool.annotations());
    match tool {
        ToolName::ExecuteCommand => described
            .with_input_schema::<execute::Arguments>()
            .with_output_schema::<execute::Document>(),
        ToolName::GetProcessOutput => described
            .with_input_schema::<processes::OutputArguments>()
            .with_output_schema::<processes::OutputDocument>(),
        ToolName::KillProcess => described
            .with_input_schema::<processes::KillArguments>()
            .with_output_schema::<processes::KillDocument>(),
        ToolName::ReadFile => described
            .with_input_schema::<files::ReadArguments>()
            .with_output_schema::<files::ReadDocument>(),
        ToolName::WriteFile => described
            .with_input_schema::<files::WriteArguments>()
            .with_output_schema::<files::WriteDocument>(),
        ToolName::ListFiles => described
            .with_input_schema::<files::ListArguments>()
            .with_output_schema::<files::ListDocument>(),
        ToolName::RunBundle => described
            .with_input_schema::<bundles::Arguments>()
            .with_output_schema::<bundles::Document>(),
        ToolName::ExplainDenial => described
            .with_input_schema::<denials::Arguments>()
            .with_output_schema::<denials::Document>(),
    }
}

pub(super) async fn call(
    tool: ToolName,
    server: &Server,
    arguments: JsonObject,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    match tool {
        ToolName::ExecuteCommand => execute::call(server, read(arguments)?, context).await,
        ToolName::GetProcessOutput => processes::output(server, read(arguments)?, context).await,
        ToolName::KillProcess => processes::kill(server, read(arguments)?, context).await,
        ToolName::ReadFile => files::read(server, read(arguments)?, context).await,
        ToolName::WriteFile => files::write(server, read(arguments)?, context).await,
        ToolName::ListFiles => files::list(server, read(arguments)?, context).await,
        ToolName::RunBundle => bundles::call(server, read(arguments)?, context).await,
        ToolName::ExplainDenial => denials::call(server, read(arguments)?, context).await,
    }
}

/// A wrong argument is told to the model, which can correct it.
fn read<Arguments: DeserializeOwned>(arguments: JsonObject) -> Result<Arguments, Refusal> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Refusal(format!("invalid arguments: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_schemas_that_refuse_unknown_arguments() {
        for tool in ToolName::ALL {
            let described = describe(tool);
            assert_eq!(described.input_schema["type"], "object", "{tool:?}");
            assert_eq!(described.input_schema["additionalProperties"], false);
            let output = described.output_schema.expect("a schema");
            assert_eq!(output["type"], "object", "{tool:?}");
            for schema in [&described.input_schema, &output] {
                let text = serde_json::to_string(schema).expect("JSON");
                assert!(!text.contains(r#""format":"#), "{tool:?}: {text}");
            }
        }
        assert_eq!(ToolName::offered(false).count(), 7);
        assert_eq!(ToolName::offered(true).count(), 8);
    }
}
