//! `define_runner` (AIP-17): completes engine, image, needs and limits.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::define::{DefineError, error_in_definition, read, unwrapped, warnings_in_definition};
use crate::image::{self, ImageTemplate};
use crate::limits::Limit;
use crate::manifest::StatedLimit;
use crate::report::WarningReport;
use crate::run_form::Run;
use crate::runner_block::{Engine, Language, Needs};

const FUNCTION: &str = "define_runner";

/// Inputs of the host for defining a runner.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunnerSurroundings<'host> {
    /// The manifest's `run`. Its language is the default of `needs.language`.
    pub run: Option<&'host Value>,
    /// The host's templates for `engine: sandbox`: see [`crate::image::registry`].
    pub images: &'host [ImageTemplate],
}

/// The declared engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerEngine {
    /// Inside the host's own process. Never granted: see [`RunnerHandle::resolve_for_origin`].
    InProcess,
    Subprocess,
    Sandbox,
}

/// A complete `runner` block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunnerHandle {
    /// As declared.
    pub engine: RunnerEngine,
    /// Template id for `engine: sandbox`, as declared or selected; `None` for other engines.
    pub image: Option<String>,
    pub needs: LanguageNeeds,
    pub limits: RunnerLimits,
    /// Packages of `needs.native` that the image lacks: a cold start installs them. Empty for other
    /// engines than `sandbox`.
    pub install: Vec<String>,
    pub warnings: Vec<WarningReport>,
}

/// The complete needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LanguageNeeds {
    /// As declared, else that of `run`, else `multi`.
    pub language: Language,
    pub native: Vec<String>,
    pub npm: Vec<String>,
    pub pip: Vec<String>,
}

/// The complete limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RunnerLimits {
    /// MiB; 256 by default.
    pub memory_mb: u64,
    /// Wall time; 600,000 by default.
    pub timeout_ms: u64,
    pub cpu_ms: Option<u64>,
}

/// A handle after the host's downgrade rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolvedRunner {
    #[serde(flatten)]
    pub handle: RunnerHandle,
    /// Whether the engine differs from the declared one.
    pub downgraded: bool,
    pub origin: String,
}

/// Completes the `runner` block `definition`. It does no I/O.
///
/// # Errors
/// [`DefineError`]: an invalid key or value, a `run` in another language than `needs.language`, an
/// unknown image.
pub fn define_runner(
    definition: &Value,
    surroundings: &RunnerSurroundings<'_>,
) -> Result<RunnerHandle, DefineError> {
    let mut entries = Map::new();
    if let Some(run) = surroundings.run {
        entries.insert("run".to_owned(), run.clone());
    }
    entries.insert("runner".to_owned(), definition.clone());
    let manifest = read(FUNCTION, entries).map_err(|error| error_in_definition(error, "runner"))?;
    let block = manifest.runner;
    let language = block
        .needs
        .language
        .or_else(|| manifest.run.as_ref().and_then(Run::language))
        .unwrap_or(Language::Multi);
    let needs = Needs {
        language: Some(language),
        ..block.needs
    };
    let image = match block.engine {
        Engine::Subprocess => None,
        Engine::Sandbox => {
            let named = block.image.as_deref();
            Some(image::resolve(named, &needs, surroundings.images)?)
        }
    };
    let declared = unwrapped(definition).get("engine").and_then(Value::as_str);
    let engine = match (declared, block.engine) {
        (Some("in-process"), _) => RunnerEngine::InProcess,
        (_, Engine::Subprocess) => RunnerEngine::Subprocess,
        (_, Engine::Sandbox) => RunnerEngine::Sandbox,
    };
    let stated_or_default = |limit: Limit| {
        let default = limit.row().default.unwrap_or_default();
        stated(&block.limits, limit).unwrap_or(default)
    };
    let (image, install) = image.map(|one| (one.id, one.install)).unzip();
    Ok(RunnerHandle {
        engine,
        image,
        needs: LanguageNeeds {
            language,
            native: needs.native,
            npm: needs.npm,
            pip: needs.pip,
        },
        limits: RunnerLimits {
            memory_mb: stated_or_default(Limit::Memory) >> 20,
            timeout_ms: stated_or_default(Limit::WallTime),
            cpu_ms: stated(&block.limits, Limit::CpuTime),
        },
        install: install.unwrap_or_default(),
        warnings: warnings_in_definition(FUNCTION, &manifest.warnings, "runner"),
    })
}

impl RunnerHandle {
    /// Resolves the handle for a manifest from `origin` (`workspace`, `ai-draft`, `host` …).
    ///
    /// `in-process` becomes `subprocess` for every origin, including `host`: only code that ships
    /// inside this program could be trusted, and there is none. Other engines stay.
    #[must_use]
    pub fn resolve_for_origin(&self, origin: &str) -> ResolvedRunner {
        let downgraded = self.engine == RunnerEngine::InProcess;
        let mut handle = self.clone();
        if downgraded {
            handle.engine = RunnerEngine::Subprocess;
        }
        ResolvedRunner {
            handle,
            downgraded,
            origin: origin.to_owned(),
        }
    }
}

pub(super) fn stated(limits: &[StatedLimit], limit: Limit) -> Option<u64> {
    limits
        .iter()
        .find(|stated| stated.limit == limit)
        .map(|stated| stated.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The handle as JSON, with the registry that every host knows.
    fn defined(definition: &Value, run: Option<&Value>) -> Value {
        let images = image::registry(&[]).expect("read");
        let surroundings = RunnerSurroundings {
            run,
            images: &images,
        };
        let handle = define_runner(definition, &surroundings).expect("defined");
        serde_json::to_value(handle).expect("written")
    }

    fn refused(definition: &Value, run: Option<&Value>) -> (String, String) {
        let images = image::registry(&[]).expect("read");
        let surroundings = RunnerSurroundings {
            run,
            images: &images,
        };
        let error = define_runner(definition, &surroundings).expect_err("refused");
        (error.code().to_owned(), error.pointer())
    }

    #[test]
    fn an_empty_block_has_every_field_with_its_default() {
        assert_eq!(
            defined(&json!({}), None),
            json!({
                "engine": "subprocess",
                "image": null,
                "needs": {"language": "multi", "native": [], "npm": [], "pip": []},
                "limits": {"memory_mb": 256, "timeout_ms": 600_000, "cpu_ms": null},
                "install": [],
                "warnings": [],
            })
        );
    }

    #[test]
    fn the_example_of_the_specification_is_unchanged() {
        let definition = json!({
            "engine": "sandbox",
            "image": "mcp-node-server",
            "needs": {
                "language": "node",
                "native": ["weasyprint"],
                "npm": ["stripe@^11.0.0"],
                "pip": ["requests==2.31.0"],
            },
            "limits": {"memory_mb": 1024, "timeout_ms": 60_000, "cpu_ms": 30_000},
        });
        let handle = defined(&definition, None);
        for key in ["engine", "image", "needs", "limits"] {
            assert_eq!(handle[key], definition[key], "{key}");
        }
        assert_eq!(handle["install"], json!(["weasyprint"]));
        let inline = json!({"inline": {"engine": "subprocess", "needs": {"language": "python"}}});
        assert_eq!(defined(&inline, None)["needs"]["language"], "python");
    }

    #[test]
    fn the_default_language_is_that_of_run() {
        for (run, language, image) in [
            (json!("tool.ts"), "node", "minimal-node"),
            (json!({"file": "a/b.mjs"}), "node", "minimal-node"),
            (json!("tool.py"), "python", "minimal-python"),
            (json!(["python3", "-m", "tool"]), "python", "minimal-python"),
            (json!("npm run build && node x.js"), "multi", "multi"),
            (json!("bin/tool"), "multi", "multi"),
        ] {
            let handle = defined(&json!({"engine": "sandbox"}), Some(&run));
            assert_eq!(handle["needs"]["language"], language, "{run}");
            assert_eq!(handle["image"], image, "{run}");
            let handle = defined(&json!({}), Some(&run));
            assert_eq!(handle["needs"]["language"], language, "{run}");
            assert_eq!(handle["image"], Value::Null, "{run}");
        }
        let named = json!({"needs": {"language": "python"}});
        assert_eq!(
            refused(&named, Some(&json!("tool.ts"))),
            ("needs_contradict_run".to_owned(), "/run".to_owned())
        );
    }

    #[test]
    fn only_engine_sandbox_has_an_image() {
        let needs = json!({"language": "node", "native": ["chromium"]});
        let handle = defined(&json!({"engine": "sandbox", "needs": needs}), None);
        assert_eq!(handle["image"], "mcp-browser-server");
        for engine in ["subprocess", "in-process"] {
            let definition = json!({"engine": engine, "image": "mcp-node-server", "needs": needs});
            let handle = defined(&definition, None);
            assert_eq!(handle["image"], Value::Null);
            assert_eq!(handle["install"], json!([]));
        }
        let unknown = json!({"engine": "sandbox", "image": "none-such"});
        assert_eq!(
            refused(&unknown, None),
            ("image_unknown".to_owned(), "/image".to_owned())
        );
    }

    #[test]
    fn in_process_is_downgraded_for_every_origin() {
        let surroundings = RunnerSurroundings::default();
        let handle =
            define_runner(&json!({"engine": "in-process"}), &surroundings).expect("defined");
        assert_eq!(handle.engine, RunnerEngine::InProcess);
        assert_eq!(handle.warnings[0].code, "engine_downgraded");
        for origin in ["workspace", "ai-draft", "host", ""] {
            let resolved = handle.resolve_for_origin(origin);
            assert!(resolved.downgraded, "{origin}");
            let written = serde_json::to_value(&resolved).expect("written");
            assert_eq!(written["engine"], "subprocess");
            assert_eq!(written["downgraded"], true);
            assert_eq!(written["origin"], origin);
            assert_eq!(written["limits"]["memory_mb"], 256);
        }
        for engine in ["subprocess", "sandbox"] {
            let images = image::registry(&[]).expect("read");
            let surroundings = RunnerSurroundings {
                run: None,
                images: &images,
            };
            let handle = define_runner(&json!({"engine": engine}), &surroundings).expect("defined");
            let resolved = handle.resolve_for_origin("ai-draft");
            assert!(!resolved.downgraded);
            assert_eq!(resolved.handle, handle);
        }
    }

    #[test]
    fn a_refusal_names_the_place_in_the_definition() {
        for (definition, code, pointer) in [
            (json!("subprocess"), "wrong_type", ""),
            (json!({"engines": "x"}), "unknown_key", "/engines"),
            (json!({"engine": "docker"}), "unknown_value", "/engine"),
            (
                json!({"inline": {"engine": 1}}),
                "wrong_type",
                "/inline/engine",
            ),
            (
                json!({"ref": "./RUNNER.md"}),
                "runner_ref_unresolvable",
                "/ref",
            ),
            (
                json!({"limits": {"vcpus": 2}}),
                "unknown_key",
                "/limits/vcpus",
            ),
            (
                json!({"limits": {"memory_mb": 0}}),
                "out_of_range",
                "/limits/memory_mb",
            ),
            (
                json!({"limits": {"timeout_ms": 1.5}}),
                "wrong_type",
                "/limits/timeout_ms",
            ),
            (
                json!({"needs": {"npm": ["-g"]}}),
                "wrong_type",
                "/needs/npm/0",
            ),
            (json!({"image": "docker://x"}), "wrong_type", "/image"),
        ] {
            assert_eq!(
                refused(&definition, None),
                (code.to_owned(), pointer.to_owned()),
                "{definition}"
            );
        }
    }

    #[test]
    fn a_message_has_a_pointer_and_no_line() {
        let error = define_runner(
            &json!({"limits": {"memoryMb": 1}}),
            &RunnerSurroundings::default(),
        )
        .expect_err("another spelling");
        assert_eq!(
            error.to_string(),
            "define_runner at /limits/memoryMb: found the key `memoryMb`, expected one of \
             memory_mb, timeout_ms, cpu_ms"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `memory_mb`?"));
    }
}
