//! Decisions: what exactly will be done, in what order. Pure; host facts are arguments.
#![forbid(unsafe_code)]

pub mod demonstration;
pub mod doctor;
pub mod egress;
pub mod environment;
pub mod filter;
pub mod grants;
pub mod image;
pub mod image_root;
pub mod image_user;
pub mod limits;
pub mod node_permission;
pub mod preparation;
pub mod ruleset;
pub mod run_form;
pub mod run_place;
pub mod service;
pub mod sources;
pub mod typescript;
pub mod view;
