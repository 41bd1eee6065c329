//! Selects the image of a `runner` block: the named one, else the lightest that fits.

use crate::image::{ImageError, ImageTemplate, SelectedTemplate, resolve};
use crate::run_form::Run;
use crate::runner_block::{Engine, Language, Needs, RunnerBlock};

/// The needs of a block. The default language is that of `run`.
#[must_use]
pub fn needs_of(block: &RunnerBlock, run: Option<&Run>) -> Needs {
    let language = block.needs.language.or_else(|| run.and_then(Run::language));
    Needs {
        language: Some(language.unwrap_or(Language::Multi)),
        ..block.needs.clone()
    }
}

/// Selects the image of a `runner` block; `None`: the engine has no image.
///
/// # Errors
/// [`ImageError`].
pub fn image_of(
    block: &RunnerBlock,
    run: Option<&Run>,
    templates: &[ImageTemplate],
) -> Result<Option<SelectedTemplate>, ImageError> {
    match block.engine {
        Engine::Subprocess => Ok(None),
        Engine::Sandbox => {
            resolve(block.image.as_deref(), &needs_of(block, run), templates).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::registry;

    #[test]
    fn without_a_language_in_the_block_the_one_of_run_decides() {
        let templates = registry(&[]).expect("read");
        let mut block = RunnerBlock {
            engine: Engine::Sandbox,
            ..RunnerBlock::default()
        };
        let image = |block: &RunnerBlock, run: &str| {
            image_of(block, Some(&Run::Text(run.to_owned())), &templates)
                .expect("selected")
                .map(|template| template.id)
        };
        assert_eq!(image(&block, "tool.ts").as_deref(), Some("minimal-node"));
        assert_eq!(image(&block, "tool.py").as_deref(), Some("minimal-python"));
        assert_eq!(image(&block, "make all").as_deref(), Some("multi"));
        block.needs.language = Some(Language::Node);
        assert_eq!(image(&block, "make all").as_deref(), Some("minimal-node"));
        block.engine = Engine::Subprocess;
        assert_eq!(image(&block, "tool.ts"), None);
    }
}
