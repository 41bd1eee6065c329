//! Signals by name and number (signal(7)).

const SIGNALS: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// Highest signal number (SIGRTMAX, signal(7)).
const SIGNAL_MAX: i32 = 64;

/// Parses a signal, such as `SIGTERM`, `term` or `15`. Real-time signals have numbers only.
///
/// # Errors
/// What was expected.
pub fn parse_signal(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse::<i32>()
        && (1..=SIGNAL_MAX).contains(&number)
    {
        return Ok(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
        .ok_or_else(|| "expected a signal such as SIGTERM, INT or 15".to_owned())
}

/// The name of a signal for messages; `signal 40` for one without a name.
#[must_use]
pub fn signal_name(number: i32) -> String {
    SIGNALS
        .iter()
        .find(|(_, known)| *known == number)
        .map_or_else(
            || format!("signal {number}"),
            |(name, _)| format!("SIG{name}"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_with_and_without_sig_and_a_number() {
        for text in ["SIGTERM", "sigterm", "TERM", "15"] {
            assert_eq!(parse_signal(text), Ok(libc::SIGTERM), "{text}");
        }
        assert_eq!(parse_signal("64"), Ok(64));
        for text in ["0", "-9", "65", "SIG", "", "SIGSIGTERM", "TERMINATE"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(40), "signal 40");
    }
}
