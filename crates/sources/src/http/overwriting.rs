//! Overwrites what was sent to a server. A connection keeps its buffers for the next request, which may be
//! one without the credential.

use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

/// The last connector of a chain.
#[derive(Debug)]
pub(super) struct Overwriting;

#[derive(Debug)]
pub(super) struct Overwritten<T>(T);

impl<T: Transport> Connector<T> for Overwriting {
    type Out = Overwritten<T>;

    fn connect(
        &self,
        _details: &ConnectionDetails<'_>,
        chained: Option<T>,
    ) -> Result<Option<Overwritten<T>>, Error> {
        Ok(chained.map(Overwritten))
    }
}

impl<T: Transport> Transport for Overwritten<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let sent = self.0.transmit_output(amount, timeout);
        self.0.buffers().output()[..amount].fill(0);
        sent
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.0.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}
