//! `runner sandbox forward`.

use std::net::TcpListener;

use super::parse_name;
use crate::cli::args::CommonFlags;
use crate::cli::print::Printer;
use crate::run::verbs::ports::{self, Forwarding};
use crate::run::verbs::sandboxes::SandboxError;
use spec::network::{ForwardedPort, PublishedPort};
use spec::report::{ErrorReport, WarningReport};
use spec::request::Caller;

pub(super) const HELP: &str = "\
Connections to HOST_PORT at ADDRESS [default: 127.0.0.1] of this host go to PORT at 127.0.0.1 or ::1
of the sandbox. HOST_PORT is the same as PORT by default; 0 or nothing is any free port. A line
ADDRESS:HOST_PORT -> PORT for each is printed once they are open. Every user of this host can
connect. Ctrl-C ends it.

Examples:
  runner sandbox forward build 8000
  runner sandbox forward build 8080:80 0:5432
  runner sandbox forward build 0.0.0.0:8080:80

Exit codes: 125 no such sandbox, a port is taken, or the sandbox has ended; 128 + n signal n.";

#[derive(Debug, clap::Args)]
pub struct Forward {
    /// Pass one connection to the process at the other end of standard output, a socket
    #[arg(long, hide = true)]
    pub pass: bool,
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// The ports
    #[arg(required = true, value_name = "[[ADDRESS:]HOST_PORT:]PORT", value_parser = read_port)]
    pub ports: Vec<ForwardedPort>,
    #[command(flatten)]
    pub common: CommonFlags,
}

fn read_port(text: &str) -> Result<ForwardedPort, &'static str> {
    ForwardedPort::parse(text)
        .ok_or("expected PORT, HOST_PORT:PORT or ADDRESS:HOST_PORT:PORT, such as 8080:80")
}

/// Forwards connections until the sandbox ends. Returns the exit code.
pub(super) fn forward(
    args: &Forward,
    caller: &Caller,
    printer: Printer,
) -> Result<u8, ErrorReport> {
    let name = parse_name(&args.sandbox)?;
    if let (true, [port]) = (args.pass, &*args.ports) {
        let passed = ports::pass(caller, &name, port.ports.body_port);
        return passed.map(|()| 0).map_err(|error| error.report());
    }
    let ports = args
        .ports
        .iter()
        .map(listen)
        .collect::<Result<Vec<_>, _>>()?;
    let mut lines = String::new();
    for (listener, port) in &ports {
        let address = listener.local_addr().map_err(|error| no_address(&error))?;
        lines += &format!("{address} -> {port}\n");
    }
    let forwarding = Forwarding {
        caller: caller.clone(),
        name,
        ports,
        report: move |error: &SandboxError| {
            let ErrorReport { code, message, .. } = error.report();
            printer.warnings(&[WarningReport::new(&code, message)]);
        },
    };
    let ended = forwarding.run(|| {
        if !printer.is_quiet() {
            // Nobody may read it.
            let _written = printer.document(&lines, 0);
        }
    });
    Ok(match ended {
        SandboxError::Ended { .. } => printer.failure(&ended.report()),
        refused => printer.problem("refused", &refused.report()),
    })
}

fn listen(forwarded: &ForwardedPort) -> Result<(TcpListener, u16), ErrorReport> {
    let ForwardedPort {
        address,
        ports: PublishedPort {
            host_port,
            body_port,
        },
    } = *forwarded;
    let listening = TcpListener::bind((address, host_port)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener, body_port))
    });
    listening.map_err(|error| {
        let at = std::net::SocketAddr::from((address, host_port));
        ErrorReport::new(
            "port_unavailable",
            format!("cannot listen at {at}: {error}"),
        )
        .with_hint(format!("0:{body_port} takes any free port of this host"))
    })
}

fn no_address(error: &std::io::Error) -> ErrorReport {
    ErrorReport::new("host_failed", format!("a socket has no address: {error}"))
}
