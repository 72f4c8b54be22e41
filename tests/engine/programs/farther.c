/* The library at the end of the chain of RUNPATHs. */
const char *farther = "found";
