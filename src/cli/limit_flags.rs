//! Flags of the limits, from the table in [`spec::limits`].

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use spec::limits::{Flag, FlagValue, Limit, LimitValues, UNLIMITED, milliseconds};
use spec::sandboxes::CommandLimits;
use spec::units::{parse_cpus, parse_duration, parse_size_bytes};

#[derive(Debug, Clone, Copy, Default)]
pub struct LimitValueFlags(pub LimitValues);

impl Args for LimitValueFlags {
    fn augment_args(command: Command) -> Command {
        let flags = Limit::ALL.into_iter().filter_map(|limit| limit.row().flag);
        command.args(flags.map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitValueFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for limit in Limit::ALL {
            if let Some(flag) = limit.row().flag
                && let Some(value) = matches.get_one(flag.long)
            {
                self.0.set(limit, *value);
            }
        }
        Ok(())
    }
}

/// Limits of one command of a sandbox. They have no variables: those are of the sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommandLimitFlags(pub CommandLimits);

/// Before the long name, in the id of a flag of [`CommandLimitFlags`].
const OF_COMMAND: &str = "command-";

const OF_COMMANDS: [(Limit, &str); 4] = [
    (
        Limit::Memory,
        "Memory of the command's processes, files in memory included",
    ),
    (Limit::CpuTime, "CPU time of the command's processes"),
    (Limit::Cpus, "Share of processors, 1.5 for one and a half"),
    (Limit::Processes, "Processes and threads at once"),
];

impl Args for CommandLimitFlags {
    fn augment_args(command: Command) -> Command {
        let flags = OF_COMMANDS.into_iter().filter_map(|(limit, help)| {
            let flag = limit.row().flag?;
            let parse = move |text: &str| {
                let value = parse(flag.value, text)?;
                limit.too_small(value).map_or(Ok(value), Err)
            };
            let argument = argument(Flag { help, ..flag });
            Some(argument.id(id_of(flag)).value_parser(parse))
        });
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Whether it is a flag of [`CommandLimitFlags`].
pub(super) fn is_of_command(flag: &Arg) -> bool {
    flag.get_id().as_str().starts_with(OF_COMMAND)
}

fn id_of(flag: Flag) -> String {
    format!("{OF_COMMAND}{}", flag.long)
}

impl FromArgMatches for CommandLimitFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let value = |limit: Limit| {
            let id = limit.row().flag.map(id_of)?;
            matches.get_one(&id).copied()
        };
        Ok(Self(CommandLimits {
            memory_bytes: value(Limit::Memory),
            processes: value(Limit::Processes),
            cpu_millis: value(Limit::Cpus),
            cpu_time_ms: value(Limit::CpuTime),
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(flag: Flag) -> Arg {
    let argument = Arg::new(flag.long)
        .long(flag.long)
        .help(flag.help)
        .value_parser(move |text: &str| parse(flag.value, text))
        .value_name(match flag.value {
            FlagValue::Size | FlagValue::SizeOrZero => "SIZE",
            FlagValue::Time | FlagValue::TimeOrNone => "DURATION",
            FlagValue::Cpus | FlagValue::Count { .. } => "NUMBER",
        });
    match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    }
}

/// The value of a flag, in the unit of its limit's name.
///
/// # Errors
/// What was expected.
pub(super) fn parse(kind: FlagValue, text: &str) -> Result<u64, String> {
    match kind {
        FlagValue::Size => match parse_size_bytes(text).map_err(|error| error.to_string())? {
            0 => Err("0 would leave nothing; omit the flag for the default".to_owned()),
            bytes => Ok(bytes),
        },
        FlagValue::SizeOrZero => parse_size_bytes(text).map_err(|error| error.to_string()),
        FlagValue::TimeOrNone if text == "none" => Ok(UNLIMITED),
        FlagValue::Time | FlagValue::TimeOrNone => {
            let duration = parse_duration(text).map_err(|error| error.to_string())?;
            if duration.is_zero() {
                return Err("0 would leave no time; omit the flag for the default".to_owned());
            }
            Ok(milliseconds(duration))
        }
        FlagValue::Cpus => parse_cpus(text),
        FlagValue::Count { min, max } => {
            let number = text.parse().ok();
            let number = number.filter(|number| (min..=max).contains(number));
            number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_in_each_help_is_the_one_that_holds() {
        for limit in Limit::ALL {
            let row = limit.row();
            let Some(flag) = row.flag else {
                continue;
            };
            let stated = flag.help.split_once("[default: ").map(|(_, stated)| {
                let stated = stated.split([']', ';']).next().unwrap_or_default();
                parse(flag.value, stated).expect("read")
            });
            assert_eq!(stated, row.default, "--{}", flag.long);
        }
    }

    #[test]
    fn no_number_removes_a_limit() {
        for limit in Limit::ALL {
            if let Some(flag) = limit.row().flag {
                let read = parse(flag.value, &UNLIMITED.to_string());
                assert!(read.is_err(), "--{}: {read:?}", flag.long);
            }
        }
        let pids = Limit::Processes.row().flag.expect("a flag").value;
        assert_eq!(parse(pids, "4194304"), Ok(4_194_304));
        for refused in ["0", "4194305", "4294967295", "-1"] {
            let expected = "expected a whole number from 1 to 4194304".to_owned();
            assert_eq!(parse(pids, refused), Err(expected), "{refused}");
        }
    }
}
