//! Records of runs: what a killed supervisor left is found and removed by a later start.
