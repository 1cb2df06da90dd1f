/* What the library does with a program that it asks: child output PROGRAM [ARGUMENT...] | ignoring ... | closed ... |
   libpython PYTHON | quoted ARGUMENT... Prints the answer, or ends with 3 when there is none. */
#include "shim.c"
#include <signal.h>

int main(int count, char **arguments) {
  static char out[PATH_BYTES];
  FILE *answer = fdopen(dup(1), "w");
  if (strcmp(arguments[1], "quoted") == 0) {
    for (int i = 2; i < count; i++) fwrite(out, 1, platform_quoted(arguments[i], out, sizeof out) + 1, answer);
    return fclose(answer);
  }
  if (strcmp(arguments[1], "ignoring") == 0) signal(SIGCHLD, SIG_IGN);
  if (strcmp(arguments[1], "closed") == 0) close(0), close(1);
  int found = strcmp(arguments[1], "libpython") == 0 ? ask_for_libpython(arguments[2], out, sizeof out)
                                                    : platform_output((const char *const *)(arguments + 2), out, sizeof out);
  if (!found) return 3;
  fputs(out, answer);
  return fclose(answer);
}
