read -r start
sum=${start##*'"state":'}
sum=${sum%%[,\}]*}
[ "$sum" = null ] && sum=0
while read -r line; do
    case $line in
    '{"element"'*)
        value=${line##*'"count":'}
        value=${value%%[,\}]*}
        sum=$((sum + value))
        echo "{\"element\":{\"sum\":$sum}}"
        ;;
    '{"mark"'*)
        mark=${line##*:}
        echo "{\"stored\":${mark%\}},\"state\":$sum}"
        ;;
    *) exit ;;
    esac
done
