//! Network flags.

use std::path::PathBuf;

use spec::egress::{EgressError, EgressRule, suggest};
use spec::network::{
    AddedHost, CaptureChoice, HostLearning, NetworkFlagError, NetworkOptions, PublishedPort,
};
use spec::path::escape;

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Network (none by default)")]
pub struct NetworkFlags {
    /// Let the body connect to a host, at any TCP port or only at PORT; *.HOST: any name below it
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',')]
    pub allow_net: Vec<String>,
    /// Publish a port of the body on 127.0.0.1 of this host; HOST_PORT 0 is any free port
    #[arg(short, long, value_name = "HOST_PORT:BODY_PORT", value_delimiter = ',')]
    pub publish: Vec<String>,
    /// Write a line HOST_PORT:BODY_PORT for each published port to this file, before the body starts
    #[arg(long, value_name = "FILE")]
    pub publish_file: Option<PathBuf>,
    /// Use this address of an allowed host instead of looking it up; the host policy must allow one that is not public
    #[arg(long, value_name = "HOST:IP", value_delimiter = ',')]
    pub add_host: Vec<String>,
    /// Report denied connections also if no host is allowed
    #[arg(long)]
    pub report_denials: bool,
    /// How connections are captured: tproxy at every port, with nf_tables; anyip at 80, 443 and the listed ports, without [default: auto]
    #[arg(long, value_name = "HOW")]
    pub egress_capture: Option<CaptureArgument>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CaptureArgument {
    /// With nf_tables if the kernel has it, else without
    Auto,
    /// With nf_tables only
    Tproxy,
    /// Without nf_tables
    Anyip,
}

/// An invalid value of these flags. `found` is escaped.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("--allow-net `{found}`: {error}")]
    Egress {
        found: String,
        #[source]
        error: EgressError,
        suggestion: Option<EgressRule>,
    },
    /// `--publish` or `--add-host`.
    #[error("--{flag} `{found}`: {error}")]
    Value {
        /// The long name.
        flag: &'static str,
        found: String,
        #[source]
        error: NetworkFlagError,
    },
    /// Two ports of the body have the same port of the host.
    #[error("--publish `{again}`: port {} of this host is taken by `{first}`", .first.host_port)]
    PortTwice {
        first: PublishedPort,
        again: PublishedPort,
    },
}

impl NetworkError {
    #[must_use]
    pub fn hint(&self) -> String {
        let text = match self {
            Self::Egress {
                suggestion: Some(rule),
                ..
            } => return format!("did you mean `{rule}`?"),
            Self::Egress { .. } => "write HOST, HOST:PORT or *.HOST, such as api.example.com:443",
            Self::Value { error, .. } => match error {
                NetworkFlagError::NoPorts | NetworkFlagError::Port => {
                    "write HOST_PORT:BODY_PORT; HOST_PORT 0 takes any free port of this host"
                }
                NetworkFlagError::NoAddedHost
                | NetworkFlagError::Name(_)
                | NetworkFlagError::Address => {
                    "write HOST:IP, an IPv6 address with or without brackets, such as \
                     a.example.com:[2001:db8::7]"
                }
            },
            Self::PortTwice { .. } => "choose another port of this host",
        };
        text.to_owned()
    }
}

impl NetworkFlags {
    /// The options of these flags. `publish_file` is the absolute path of `--publish-file`.
    ///
    /// # Errors
    /// The first invalid value.
    pub(crate) fn options(
        &self,
        publish_file: Option<PathBuf>,
    ) -> Result<NetworkOptions, NetworkError> {
        let allow = self.allow_net.iter().map(|text| parse_rule(text));
        Ok(NetworkOptions {
            allow: allow.collect::<Result<_, _>>()?,
            publish: parse_publish(&self.publish)?,
            publish_file,
            added_hosts: parse_all("add-host", &self.add_host, AddedHost::parse)?,
            report_denials: self.report_denials,
            capture: match self.egress_capture {
                None | Some(CaptureArgument::Auto) => CaptureChoice::Auto,
                Some(CaptureArgument::Tproxy) => CaptureChoice::Tproxy,
                Some(CaptureArgument::Anyip) => CaptureChoice::AnyIp,
            },
            learning: HostLearning::Off,
        })
    }
}

fn parse_rule(text: &str) -> Result<EgressRule, NetworkError> {
    EgressRule::parse(text).map_err(|error| NetworkError::Egress {
        found: escape(text.as_bytes()),
        error,
        suggestion: suggest(text),
    })
}

fn parse_all<T>(
    flag: &'static str,
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, NetworkFlagError>,
) -> Result<Vec<T>, NetworkError> {
    let parse = |text: &String| {
        parse(text).map_err(|error| NetworkError::Value {
            flag,
            found: escape(text.as_bytes()),
            error,
        })
    };
    texts.iter().map(parse).collect()
}

fn parse_publish(texts: &[String]) -> Result<Vec<PublishedPort>, NetworkError> {
    let ports = parse_all("publish", texts, PublishedPort::parse)?;
    for (index, again) in ports.iter().enumerate() {
        let mut before = ports[..index].iter();
        let same = |first: &&PublishedPort| first.host_port == again.host_port;
        if again.host_port != 0
            && let Some(first) = before.find(same)
        {
            return Err(NetworkError::PortTwice {
                first: *first,
                again: *again,
            });
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn refused(flags: NetworkFlags) -> (String, String) {
        let error = flags.options(None).expect_err("refused");
        (error.to_string(), error.hint())
    }

    #[test]
    fn every_value_lands_in_its_field() {
        let options = NetworkFlags {
            allow_net: texts(&["A.com:443", "*.b.com"]),
            publish: texts(&["8080:80", "8081:80", "0:80", "0:81"]),
            publish_file: None,
            add_host: texts(&["a.com:[::1]"]),
            report_denials: true,
            egress_capture: Some(CaptureArgument::Anyip),
        };
        let read = options.options(None).expect("read");
        let allowed: Vec<String> = read.allow.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["a.com:443", "*.b.com"]);
        let ports: Vec<String> = read.publish.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["8080:80", "8081:80", "0:80", "0:81"]);
        assert_eq!(read.added_hosts[0].to_string(), "a.com:::1");
        assert_eq!(
            (read.report_denials, read.capture),
            (true, CaptureChoice::AnyIp)
        );
        let nothing = NetworkFlags::default().options(None).expect("read");
        assert_eq!(nothing, NetworkOptions::default());
    }

    #[test]
    fn an_invalid_value_is_refused_with_a_hint() {
        for (value, message_part, hint_part) in [
            (
                "https://a.com/x",
                "--allow-net `https://a.com/x`: this is a URL or a part of one, expected a host",
                "did you mean `a.com`?",
            ),
            ("a.com.", "the name ends in a dot", "did you mean `a.com`?"),
            ("10.0.0.0/8", "a range of addresses", "write HOST"),
            ("*", "`*` would allow every host", "*.HOST"),
            ("", "the entry is empty", "write HOST"),
            ("a\x1bb", "`a\\x1bb`", "write HOST"),
        ] {
            let (message, hint) = refused(NetworkFlags {
                allow_net: texts(&["ok.com", value]),
                ..NetworkFlags::default()
            });
            assert!(message.contains(message_part), "{message}");
            assert!(hint.contains(hint_part), "{hint}");
        }
        for (ports, message_part) in [
            (
                &["00:80"][..],
                "--publish `00:80`: the port is not a number",
            ),
            (&["80"], "expected HOST_PORT:BODY_PORT"),
            (
                &["80:1", "81:1", "80:2"],
                "--publish `80:2`: port 80 of this host is taken by `80:1`",
            ),
        ] {
            let (message, hint) = refused(NetworkFlags {
                publish: texts(ports),
                ..NetworkFlags::default()
            });
            assert!(message.contains(message_part), "{message}");
            assert!(hint.contains("port of this host"), "{hint}");
        }
        let (message, hint) = refused(NetworkFlags {
            add_host: texts(&["a.com"]),
            ..NetworkFlags::default()
        });
        assert!(
            message.starts_with("--add-host `a.com`: expected HOST:IP"),
            "{message}"
        );
        assert!(hint.contains("brackets"), "{hint}");
    }
}
