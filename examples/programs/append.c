/* An exporter in C: appends each element, as one JSON line, to the file "elements.jsonl", and answers
 * `stored` once the file is on its disk.
 *
 *     kind = "program"
 *     program = ["./append"]
 *     streams = ["plant.*"]
 *
 * Build: cc -o append append.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("elements.jsonl", "a+");
    if (file == NULL) {
        perror("elements.jsonl");
        return 1;
    }
    /* A kill may have left a line without its end. Its element comes again. */
    if (fseek(file, -1, SEEK_END) == 0) {
        int last = fgetc(file);
        fseek(file, 0, SEEK_END);
        if (last != '\n')
            fputc('\n', file);
    }
    while (getline(&line, &size, stdin) > 0) {
        unsigned long long mark;
        if (strncmp(line, "{\"start\":", 9) == 0) {
            puts("{\"ready\":{}}");
        } else if (strncmp(line, "{\"element\":", 11) == 0) {
            fputs(line, file);
        } else if (sscanf(line, "{\"mark\":%llu}", &mark) == 1) {
            if (fflush(file) != 0 || fsync(fileno(file)) != 0) {
                perror("elements.jsonl");
                return 1;
            }
            printf("{\"stored\":%llu}\n", mark);
        } else {
            break; /* {"stop":{}} */
        }
        fflush(stdout);
    }
    free(line);
    return fclose(file) != 0;
}
