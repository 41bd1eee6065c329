//! The plan of a command, and the words of one that a sandbox that stays is asked for.

use std::borrow::Cow;
use std::ffi::CStr;

use rustix::io::Errno;

use crate::steps::{CommandSteps, ResourceLimit};
use filter::bpf::Instruction;
use spec::sandbox_block::Shell;
use spec::sandboxes::{Action, CommandRequest, TerminalSize};
use sys::arena::Arena;

/// The paths to try for the program `name`, as execvp(3) does: an empty directory is the working
/// directory.
pub fn program_candidates<'path>(
    name: &[u8],
    directories: impl IntoIterator<Item = &'path [u8]>,
) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    directories
        .into_iter()
        .map(|directory| match directory {
            [] => [b"./", name].concat(),
            directory => [directory, b"/", name].concat(),
        })
        .collect()
}

/// Code of this program that runs as a command of a sandbox, with the words of the command. Its streams
/// are descriptors 0, 1 and 2; the result is its exit code.
///
/// It runs in a copy of init, so it must not use memory that [`sys::allocator::keep_from_children`] has
/// kept.
pub(crate) type BuiltIn = fn(&[&CStr]) -> u8;

/// A command and what its processes are given.
#[derive(Debug, Clone, Default)]
pub struct CommandPlan {
    /// A second filter, which can only refuse more; empty: none.
    pub second_filter: Vec<Instruction>,
    pub limits: Vec<ResourceLimit>,
    pub working_directory: Vec<u8>,
    /// Paths to try in order.
    pub programs: Vec<Vec<u8>>,
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Of a sandbox that stays: runs a command of one word that is text for a shell.
    pub shell: Option<Shell>,
    /// It reads /dev/null instead of its pipe.
    pub null_stdin: bool,
}

/// The words of a command: those of its plan, or of one that a sandbox that stays is asked for.
#[derive(Debug)]
pub(crate) struct CommandWords<'a> {
    /// Paths to try in order.
    pub(crate) programs: Cow<'a, [Vec<u8>]>,
    pub(crate) argv: Cow<'a, [Vec<u8>]>,
    /// `NAME=value`. Borrowed: a copy would have to be overwritten.
    pub(crate) environment: Vec<&'a [u8]>,
    pub(crate) working_directory: &'a [u8],
    /// It reads /dev/null instead of its pipe.
    pub(crate) null_stdin: bool,
    /// A terminal of this size is made for it.
    pub(crate) terminal: Option<TerminalSize>,
    /// What it runs instead of a program.
    pub(crate) built_in: Option<BuiltIn>,
}

impl<'a> CommandWords<'a> {
    pub(crate) fn of_plan(plan: &'a CommandPlan) -> Self {
        Self {
            programs: Cow::Borrowed(&plan.programs),
            argv: Cow::Borrowed(&plan.argv),
            environment: plan.environment.iter().map(Vec::as_slice).collect(),
            working_directory: &plan.working_directory,
            null_stdin: plan.null_stdin,
            terminal: None,
            built_in: None,
        }
    }

    /// The words of `wanted`. `variables` are its own, which replace those of `common`.
    pub(crate) fn of_request(
        common: &'a CommandPlan,
        wanted: &'a CommandRequest,
        variables: &'a [Vec<u8>],
    ) -> Self {
        fn name(variable: &[u8]) -> Option<&[u8]> {
            variable.split(|byte| *byte == b'=').next()
        }
        let is_replaced = |old: &&[u8]| variables.iter().any(|new| name(new) == name(old));
        let kept = common.environment.iter().map(Vec::as_slice);
        let environment: Vec<&[u8]> = kept
            .filter(|old| !is_replaced(old))
            .chain(variables.iter().map(Vec::as_slice))
            .collect();
        let path = environment
            .iter()
            .find_map(|variable| variable.strip_prefix(b"PATH="));
        let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
        let directories = path.split(|byte| *byte == b':');
        let argv = match (common.shell, wanted.action) {
            (Some(shell), Action::Execute) => Cow::Owned(shell.words(&wanted.argv)),
            _ => Cow::Borrowed(&*wanted.argv),
        };
        Self {
            programs: Cow::Owned(program_candidates(&argv[0], directories)),
            argv,
            environment,
            working_directory: wanted
                .working_directory
                .as_deref()
                .unwrap_or(&common.working_directory),
            // The client decides what its input is.
            null_stdin: false,
            terminal: wanted.terminal,
            built_in: None,
        }
    }
}

/// The variables of a request as `NAME=value`.
pub(crate) fn variables_of(wanted: &CommandRequest) -> Vec<Vec<u8>> {
    let mut variables: Vec<Vec<u8>> = Vec::new();
    for (name, value) in &wanted.environment {
        let prefix = [name, &b"="[..]].concat();
        // The last one counts.
        variables.retain(|variable| !variable.starts_with(&prefix));
        variables.push([&prefix, &value[..]].concat());
    }
    variables
}

pub(crate) fn copy_command<'a>(
    arena: &'a Arena,
    plan: &CommandPlan,
    words: &CommandWords<'_>,
) -> Result<CommandSteps<'a>, Errno> {
    let mut programs = Vec::with_capacity(words.programs.len());
    for program in &*words.programs {
        programs.push(arena.c_string(program)?);
    }
    let built_in = match words.built_in {
        Some(run) => {
            let words = words.argv.iter().map(|word| arena.c_string(word));
            let words = words.collect::<Result<Vec<&CStr>, _>>()?;
            Some((run, arena.slice(&words)?))
        }
        None => None,
    };
    Ok(CommandSteps {
        built_in,
        second_filter: arena.slice(&plan.second_filter)?,
        limits: arena.slice(&plan.limits)?,
        working_directory: arena.c_string(words.working_directory)?,
        programs: arena.slice(&programs)?,
        argv: arena.strings(&words.argv)?,
        environment: arena.strings(&words.environment)?,
        null_stdin: words.null_stdin,
        terminal: words.terminal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::sandboxes::CommandLimits;

    #[test]
    fn a_command_gets_the_sandbox_s_variables_unless_it_names_them_and_is_found_on_its_path() {
        let bytes = |texts: &[&str]| -> Vec<Vec<u8>> {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect()
        };
        let common = CommandPlan {
            working_directory: b"/scratch".to_vec(),
            environment: bytes(&["A=1", "AB=2", "PATH=/bin:/usr/bin"]),
            ..CommandPlan::default()
        };
        fn words<'a>(
            common: &'a CommandPlan,
            wanted: &'a CommandRequest,
            variables: &'a [Vec<u8>],
        ) -> CommandWords<'a> {
            CommandWords::of_request(common, wanted, variables)
        }
        let mut wanted = CommandRequest {
            action: Action::Execute,
            argv: bytes(&["ls", "-l"]),
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms: None,
            is_detached: false,
            limits: CommandLimits::default(),
        };
        let plan = words(&common, &wanted, &[]);
        assert_eq!(*plan.programs, bytes(&["/bin/ls", "/usr/bin/ls"]));
        assert_eq!(plan.environment, common.environment);
        assert_eq!(plan.working_directory, b"/scratch");
        wanted.environment = vec![
            (b"A".to_vec(), b"3".to_vec()),
            (b"PATH".to_vec(), b":/x".to_vec()),
        ];
        wanted.working_directory = Some(b"/tmp".to_vec());
        let variables = variables_of(&wanted);
        let plan = words(&common, &wanted, &variables);
        assert_eq!(*plan.programs, bytes(&["./ls", "/x/ls"]));
        assert_eq!(plan.environment, bytes(&["AB=2", "A=3", "PATH=:/x"]));
        assert_eq!(plan.working_directory, b"/tmp");
        wanted.argv = bytes(&["a && b"]);
        assert_eq!(*words(&common, &wanted, &variables).argv, wanted.argv);
        let with_shell = CommandPlan {
            shell: Some(Shell::Bash),
            ..common.clone()
        };
        let plan = words(&with_shell, &wanted, &variables);
        assert_eq!(*plan.programs, bytes(&["/bin/bash"]));
        assert_eq!(*plan.argv, bytes(&["/bin/bash", "-c", "a && b"]));
        wanted.argv = bytes(&["bin/ls"]);
        let plan = words(&common, &wanted, &variables);
        assert_eq!(*plan.programs, bytes(&["bin/ls"]));
    }
}
