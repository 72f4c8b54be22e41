/*
 * Stands for the engine's own Default_Profiler.
 */
void firebird_plugin(void *master);

__attribute__((visibility("default"))) void firebird_plugin(void *master)
{
	(void)master;
}
