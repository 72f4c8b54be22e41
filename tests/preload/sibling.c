/*
 * A module that another one opens by its bare name: found only by the RPATH or RUNPATH of its opener.
 */
const char *sibling_name(void);

__attribute__((visibility("default"))) const char *sibling_name(void)
{
	return "sibling";
}
