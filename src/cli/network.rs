//! The flags about the network, and what they say.

use std::path::{Path, PathBuf};

use spec::egress::{EgressError, EgressRule, suggest};
use spec::network::{AddedHost, CaptureChoice, NetworkFlagError, NetworkOptions, PublishedPort};
use spec::path::escape;

/// `--allow-net`, `--publish`, `--publish-file`, `--add-host`, `--report-denials`, `--egress-capture`.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Network (none by default)")]
pub struct NetworkFlags {
    /// A host that the body may reach: every TCP port, or only PORT; *.HOST for the names below it
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',')]
    pub allow_net: Vec<String>,
    /// A port on this host's 127.0.0.1, 0 for any, that leads to a port on the body's loopback
    #[arg(short, long, value_name = "HOST_PORT:BODY_PORT", value_delimiter = ',')]
    pub publish: Vec<String>,
    /// Write each published port to this file before the body starts: HOST_PORT:BODY_PORT, one a line
    #[arg(long, value_name = "FILE")]
    pub publish_file: Option<PathBuf>,
    /// Where an allowed host is, before the hosts file and DNS; an address that is not public still needs the host policy
    #[arg(long, value_name = "HOST:IP", value_delimiter = ',')]
    pub add_host: Vec<String>,
    /// Report what the body tries to reach also where it may reach nothing
    #[arg(long)]
    pub report_denials: bool,
    /// How connections are caught: tproxy every port, anyip (without nf_tables) 80, 443 and the listed ones [default: auto]
    #[arg(long, value_name = "HOW")]
    pub egress_capture: Option<CaptureArgument>,
}

/// The value of `--egress-capture`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CaptureArgument {
    /// With nf_tables where the kernel can, else without
    Auto,
    /// With nf_tables, or not at all
    Tproxy,
    /// Without nf_tables
    Anyip,
}

/// Why a value of these flags makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// `--allow-net`.
    #[error("--allow-net `{found}`: {error}")]
    Egress {
        /// Escaped.
        found: String,
        /// What is wrong.
        #[source]
        error: EgressError,
        /// What was most likely meant.
        meant: Option<EgressRule>,
    },
    /// Another flag.
    #[error("--{flag} `{found}`: {error}")]
    Value {
        /// The long name.
        flag: &'static str,
        /// Escaped.
        found: String,
        /// What is wrong.
        #[source]
        error: NetworkFlagError,
    },
    /// Two bodies' ports cannot be behind one port.
    #[error("--publish `{again}`: port {} of the host leads to port {} already", .first.host_port, .first.body_port)]
    PortTwice {
        /// What stands first.
        first: PublishedPort,
        /// What stands later.
        again: PublishedPort,
    },
}

impl NetworkError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Egress {
                meant: Some(rule), ..
            } => format!("did you mean `{rule}`?"),
            Self::Egress { .. } => {
                "write HOST, HOST:PORT or *.HOST, such as api.example.com:443".to_owned()
            }
            Self::Value {
                flag: "publish", ..
            } => "write HOST_PORT:BODY_PORT; the port of this host is always on 127.0.0.1, and 0 \
                 takes one that is free"
                .to_owned(),
            Self::Value { .. } => {
                "write HOST:IP; IPv6 in brackets or as it is, such as a.example.com:[2001:db8::7]"
                    .to_owned()
            }
            Self::PortTwice { .. } => "choose another port of this host".to_owned(),
        }
    }
}

impl NetworkFlags {
    /// What the flags say; `absolute` knows the working directory.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub(crate) fn read_in<Error: From<NetworkError>>(
        mut self,
        absolute: impl Fn(&Path) -> Result<PathBuf, Error>,
    ) -> Result<NetworkOptions, Error> {
        let file = self.publish_file.take();
        Ok(NetworkOptions {
            publish_file: file.as_deref().map(absolute).transpose()?,
            ..self.read()?
        })
    }

    /// What the flags say, but for the file.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn read(self) -> Result<NetworkOptions, NetworkError> {
        Ok(NetworkOptions {
            allow: self
                .allow_net
                .iter()
                .map(|text| rule(text))
                .collect::<Result<_, _>>()?,
            publish: published(&self.publish)?,
            publish_file: None,
            added_hosts: values("add-host", &self.add_host, AddedHost::parse)?,
            report_denials: self.report_denials,
            capture: match self.egress_capture {
                None | Some(CaptureArgument::Auto) => CaptureChoice::Auto,
                Some(CaptureArgument::Tproxy) => CaptureChoice::Tproxy,
                Some(CaptureArgument::Anyip) => CaptureChoice::AnyIp,
            },
        })
    }
}

fn rule(text: &str) -> Result<EgressRule, NetworkError> {
    EgressRule::parse(text).map_err(|error| NetworkError::Egress {
        found: escape(text.as_bytes()),
        error,
        meant: suggest(text),
    })
}

fn values<T>(
    flag: &'static str,
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, NetworkFlagError>,
) -> Result<Vec<T>, NetworkError> {
    let value = |text: &String| {
        parse(text).map_err(|error| NetworkError::Value {
            flag,
            found: escape(text.as_bytes()),
            error,
        })
    };
    texts.iter().map(value).collect()
}

fn published(texts: &[String]) -> Result<Vec<PublishedPort>, NetworkError> {
    let ports = values("publish", texts, PublishedPort::parse)?;
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
        let error = flags.read().expect_err("refused");
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
        let read = options.read().expect("read");
        let allowed: Vec<String> = read.allow.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["a.com:443", "*.b.com"]);
        let ports: Vec<String> = read.publish.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["8080:80", "8081:80", "0:80", "0:81"]);
        assert_eq!(read.added_hosts[0].to_string(), "a.com:::1");
        assert_eq!(
            (read.report_denials, read.capture),
            (true, CaptureChoice::AnyIp)
        );
        let nothing = NetworkFlags::default().read().expect("read");
        assert_eq!(nothing, NetworkOptions::default());
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_with_what_was_meant() {
        for (value, says, hint) in [
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
            let (message, told) = refused(NetworkFlags {
                allow_net: texts(&["ok.com", value]),
                ..NetworkFlags::default()
            });
            assert!(message.contains(says), "{message}");
            assert!(told.contains(hint), "{told}");
        }
        for (ports, says) in [
            (
                &["00:80"][..],
                "--publish `00:80`: the port is not a number",
            ),
            (&["80"], "expected HOST_PORT:BODY_PORT"),
            (
                &["80:1", "81:1", "80:2"],
                "--publish `80:2`: port 80 of the host leads to port 1 already",
            ),
        ] {
            let (message, _) = refused(NetworkFlags {
                publish: texts(ports),
                ..NetworkFlags::default()
            });
            assert!(message.contains(says), "{message}");
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
