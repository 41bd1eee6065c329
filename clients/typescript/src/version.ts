/** The version of this client, which drives the program of the same minor version. */
export const VERSION = "0.1.0";
