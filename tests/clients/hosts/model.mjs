// A script in the place of a model of the AI SDK: it calls one tool, and answers with what the tool said.
const usage = { inputTokens: 0, outputTokens: 0, totalTokens: 0 };

function next({ prompt, tools }) {
  const last = prompt.at(-1);
  if (last.role === "user") {
    const toolName = "sandbox_execute_command";
    if (!tools.some((tool) => tool.name === toolName)) throw new Error(JSON.stringify(tools));
    const input = JSON.stringify({ command: "wc -l < notes.txt; touch /etc/x notes.txt", timeout: 10 });
    return { type: "tool-call", toolCallId: "1", toolName, input };
  }
  const { stdout, stderr } = last.content[0].output.value;
  if (stderr.split("Read-only file system").length !== 3) throw new Error(stderr);
  return { type: "text", text: `notes.txt has ${stdout.trim()} lines.` };
}

export const model = {
  specificationVersion: "v2",
  provider: "script",
  modelId: "script",
  supportedUrls: {},
  async doGenerate(call) {
    const part = next(call);
    const finishReason = part.type === "text" ? "stop" : "tool-calls";
    return { content: [part], finishReason, usage, warnings: [] };
  },
};
